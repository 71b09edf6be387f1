# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The work of benchmark_segmentation.py: predictions, measured."""

import argparse
import resource
import sys
import time

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.registry import init_default_scope
from mmseg.models import BaseSegmentor
from mmseg.registry import MODELS

__all__ = ['benchmark', 'measure']


def measure(
    model: BaseSegmentor, size: tuple[int, int], repeat: int = 1
) -> dict:
    """Predict an image of noise.

    Args:
        model (BaseSegmentor): The model, on its device.
        size (Tuple[int, int]): Height and width of the image.
        repeat (int): Predictions; the fastest counts. Defaults to 1.

    Returns:
        dict: ``windows`` (calls of the backbone), ``seconds`` of the fastest
        prediction, ``peak_gib`` (of the GPU, or of the process on a CPU) and
        ``before_gib`` (the same before the first prediction).
    """
    device = next(model.parameters()).device
    windows = []
    handle = model.backbone.register_forward_hook(
        lambda *_: windows.append(None)
    )
    image = torch.randint(0, 256, (3, *size), dtype=torch.uint8)
    before, seconds = _memory(device), []
    for _ in range(repeat):
        start = time.perf_counter()
        data = model.data_preprocessor(dict(inputs=[image]), False)
        with torch.no_grad():
            result = model.predict(data['inputs'])
        # Copying the map waits for the device.
        result[0].pred_sem_seg.data.cpu()
        seconds.append(time.perf_counter() - start)
    handle.remove()
    return dict(
        windows=len(windows) // repeat,
        seconds=min(seconds),
        before_gib=before,
        peak_gib=_memory(device),
    )


def _memory(device: torch.device) -> float:
    if device.type == 'cuda':
        return torch.cuda.max_memory_allocated(device) / 2**30
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # In bytes on macOS, in KiB elsewhere.
    return peak / (2**30 if sys.platform == 'darwin' else 2**20)


def benchmark(args: argparse.Namespace) -> dict:
    """Measure the prediction of an image of noise by a config's model.

    Args:
        args (argparse.Namespace): The arguments.

    Returns:
        dict: Of :func:`measure`, with the device, its threads and the size.
    """
    if args.threads:
        torch.set_num_threads(args.threads)
    cfg = Config.fromfile(args.config)
    cfg.merge_from_dict(args.cfg_options)
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    model = MODELS.build(cfg.model).eval().to(get_device())
    result = measure(model, tuple(args.size), args.repeat)
    return dict(
        device=get_device(),
        threads=torch.get_num_threads(),
        size=args.size,
        **{k: round(v, 2) for k, v in result.items()},
    )
