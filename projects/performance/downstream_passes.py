# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A detector's training step and a segmentor's prediction."""

import math
from argparse import Namespace
from collections.abc import Callable

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.logging import MMLogger
from mmengine.registry import MODELS
from mmengine.runner import turn_on_activation_checkpointing
from torch import nn

Passes = dict[str, Callable[[], object]]


def build_model(
    cfg: Config, threads: int | None = None
) -> tuple[nn.Module, str]:
    """The config's model without weights, and the device that it is on."""
    if threads:
        torch.set_num_threads(threads)
    torch.manual_seed(0)
    # It would print what each parameter was initialised by.
    MMLogger.get_instance('benchmark', log_level='ERROR')
    cfg.model.backbone.init_cfg = None
    model = MODELS.build(cfg.model)
    model.init_weights()
    return model.to(get_device()), get_device()


def detection(model: nn.Module, cfg: Config, args: Namespace) -> Passes:
    """A detector's forward and backward pass; loss and norm are printed."""
    from mmdet.testing import demo_mm_inputs

    modules = cfg.get('activation_checkpointing')
    if modules and not args.no_checkpointing:
        turn_on_activation_checkpointing(model, modules)
    model.train()
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
        loss = step['loss']
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), math.inf)
        print(f'loss {loss.item():.3f}, norm of the gradients {norm:.3f}')

    return dict(forward=forward, backward=backward)


def segmentation(model: nn.Module, cfg: Config, args: Namespace) -> Passes:
    """A segmentor's prediction of an image of noise, by so many windows."""
    model.eval()
    image = torch.randint(0, 256, (3, *args.size), dtype=torch.uint8)

    @torch.no_grad()
    def prediction() -> int:
        windows = []
        with model.backbone.register_forward_hook(
            lambda *_: windows.append(1)
        ):
            data = model.data_preprocessor(dict(inputs=[image]), False)
            model.predict(data['inputs'])[0].pred_sem_seg.data.cpu()
        print(f'{len(windows)} windows')
        return len(windows)

    return dict(prediction=prediction)


PASSES = dict(detection=detection, segmentation=segmentation)
