# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A detector's training step and a segmentor's prediction, measured."""

import math
import statistics
from argparse import ArgumentParser, Namespace
from functools import partial

import torch
from mmengine.config import Config, DictAction
from mmengine.device import get_device
from mmengine.logging import MMLogger
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import turn_on_activation_checkpointing
from torch import nn

from measure import name_of, peak_bytes, print_table, seconds_of, take_turns


def _build(args: Namespace) -> tuple[Config, nn.Module]:
    """The config and its model without weights, on the device."""
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    # It would print what each parameter was initialised by.
    MMLogger.get_instance('benchmark', log_level='ERROR')
    cfg = Config.fromfile(args.config)
    parser = ArgumentParser()
    parser.add_argument('options', nargs='*', action=DictAction)
    options = parser.parse_args(args.cfg_options).options
    cfg.merge_from_dict(options or {})
    init_default_scope(cfg.default_scope)
    cfg.model.backbone.init_cfg = None
    model = MODELS.build(cfg.model)
    model.init_weights()
    return cfg, model.to(get_device())


def detection(args: Namespace) -> None:
    """Measure a detector's forward and backward pass."""
    from mmdet.testing import demo_mm_inputs

    cfg, model = _build(args)
    modules = cfg.get('activation_checkpointing')
    if modules and not args.no_checkpointing:
        turn_on_activation_checkpointing(model, modules)
    model.train()
    before = peak_bytes(get_device())
    batch = demo_mm_inputs(
        args.batch_size,
        image_shapes=(3, *args.size),
        num_items=[args.objects] * args.batch_size,
        num_classes=cfg.model.num_classes,
        with_mask=True,
    )
    batch = model.data_preprocessor(batch, training=True)
    step = {}

    def forward() -> None:
        model.zero_grad()
        with torch.autocast('cuda', enabled=torch.cuda.is_available()):
            losses = model(**batch, mode='loss')
            step['loss'], _ = model.parse_losses(losses)

    def backward() -> None:
        step['loss'].backward()
        step['norm'] = nn.utils.clip_grad_norm_(model.parameters(), math.inf)

    passes = dict(forward=forward, backward=backward)
    turns = take_turns(
        {name: partial(seconds_of, f) for name, f in passes.items()},
        args.repeats,
        warm_up=0,
    )
    number = sum(p.numel() for p in model.parameters()) / 1e6
    height, width = batch['inputs'].shape[-2:]
    _print(
        f'{type(model).__name__}, {number:.1f} M parameters, '
        f'{args.batch_size} x {height} x {width}',
        {name: statistics.median(seconds) for name, seconds in turns.items()},
        before,
    )
    print(
        f'loss {step["loss"].item():.3f}, norm of the gradients '
        f'{step["norm"].item():.3f}'
    )


def segmentation(args: Namespace) -> None:
    """Measure a segmentor's prediction of an image of noise."""
    import mmseg.models  # noqa: F401  registers them

    _, model = _build(args)
    before = peak_bytes(get_device())
    windows, seconds = predict(model.eval(), args.size, args.repeats)
    height, width = args.size
    name = f'{type(model).__name__}, {height} x {width}, {windows} windows'
    _print(name, dict(prediction=seconds), before)


def predict(
    model: nn.Module, size: tuple[int, int], repeats: int
) -> tuple[int, float]:
    """Calls of a segmentor's backbone in a prediction, its median seconds."""
    windows = []
    count = model.backbone.register_forward_hook(lambda *_: windows.append(1))
    image = torch.randint(0, 256, (3, *size), dtype=torch.uint8)

    @torch.no_grad()
    def run() -> None:
        data = model.data_preprocessor(dict(inputs=[image]), False)
        model.predict(data['inputs'])[0].pred_sem_seg.data.cpu()

    seconds = statistics.median(seconds_of(run) for _ in range(repeats))
    count.remove()
    return len(windows) // repeats, seconds


def _print(title: str, seconds: dict[str, float], before: int) -> None:
    """Print seconds, and peak memory beside that of the built model."""
    memory = peak_bytes(get_device()), before
    row = [f'{value:.2f}' for value in seconds.values()]
    row += [f'{value / 2**30:.2f}' for value in memory]
    names = (f'{name}, s' for name in seconds)
    columns = (*names, 'peak memory, GiB', 'of it before')
    print_table(f'{title}, {name_of(get_device())}', columns, [row])
