# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The work of benchmark_detection.py: a training step, measured."""

import argparse
import math
import resource
import sys
import time

import torch
from mmdet.testing import demo_mm_inputs
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.logging import MMLogger
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import turn_on_activation_checkpointing
from torch import nn


def build_model(cfg: Config, checkpointing: bool) -> nn.Module:
    """Build the config's detector as training starts it, without weights.

    Args:
        cfg (Config): A config of detection.
        checkpointing (bool): Whether to heed ``activation_checkpointing``.

    Returns:
        nn.Module: The detector in training mode.
    """
    # It would print what each parameter was initialised by.
    MMLogger.get_instance('benchmark', log_level='ERROR')
    init_default_scope('mmdet')
    cfg.model.backbone.init_cfg = None
    model = MODELS.build(cfg.model)
    model.init_weights()
    modules = cfg.get('activation_checkpointing')
    if checkpointing and modules:
        turn_on_activation_checkpointing(model, modules)
    return model.train().to(get_device())


def peak_gibibytes() -> float:
    """Peak memory: the device's on a GPU, the process' on a CPU."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**30
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == 'darwin' else 2**20)


def benchmark(args: argparse.Namespace) -> str:
    """Measure a training step.

    Args:
        args (argparse.Namespace): The arguments.

    Returns:
        str: What was measured, for people.
    """
    torch.manual_seed(0)
    cfg = Config.fromfile(args.config)
    model = build_model(cfg, not args.no_checkpointing)
    parameters = sum(p.numel() for p in model.parameters())
    before = peak_gibibytes()
    batch = demo_mm_inputs(
        args.batch_size,
        image_shapes=(3, *args.size),
        num_items=[args.objects] * args.batch_size,
        num_classes=cfg.model.num_classes,
        with_mask=True,
    )
    batch = model.data_preprocessor(batch, training=True)
    start = time.perf_counter()
    with torch.autocast('cuda', enabled=torch.cuda.is_available()):
        loss, _ = model.parse_losses(model(**batch, mode='loss'))
    loss.item()  # waits for the device
    forward = time.perf_counter() - start
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), math.inf).item()
    backward = time.perf_counter() - start - forward
    height, width = batch['inputs'].shape[-2:]
    return (
        f'{type(model).__name__}, {parameters / 1e6:.1f} M parameters, '
        f'{args.batch_size} x {height} x {width}, {get_device()}, '
        f'{torch.get_num_threads()} threads\n'
        f'forward {forward:.1f} s, backward {backward:.1f} s, peak memory '
        f'{peak_gibibytes():.2f} GiB ({before:.2f} GiB before the step)\n'
        f'loss {loss.item():.3f}, norm of the gradients {norm:.3f}'
    )
