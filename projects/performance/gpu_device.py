# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The part of gpu.py that measures the device itself."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial

import torch

from device_peaks import peak_speed
from gpu_figures import Outcome, Row
from gpu_setting import Setting
from measure import median_seconds, name_of
from mmmoca.models.precision import tf32_allowed
from sections import product_speed
from training_step import DTYPES


def machine(setting: Setting) -> Iterator[Outcome]:
    """The device, and what its large products and copies reach."""
    device, sizes = setting.device, setting.sizes
    values = dict(device=name_of(device), cores=os.cpu_count())
    values['PyTorch'] = torch.__version__
    if setting.on_gpu:
        size = torch.cuda.get_device_properties(0).total_memory
        values['GiB'] = size / 2**30
        values['CUDA'] = torch.version.cuda
        values['cuDNN'] = torch.backends.cudnn.version()
    yield Row('Machine', values)
    for name, dtype in {**DTYPES, 'TF32': 'float32'}.items():
        dtype, tf32 = getattr(torch, dtype), name == 'TF32'
        peak = peak_speed(name_of(device), dtype, tf32)
        with tf32_allowed() if tf32 else nullcontext():
            reached = product_speed(device, dtype, sizes.repeats, sizes.side)
        yield Row(
            'Large products',
            {
                'precision': name,
                'TFLOP/s': reached / 1e12,
                'by data sheet': peak and peak / 1e12,
            },
        )
    numbers = torch.empty(2**20 if setting.tiny else 2**30, device=device)
    other = torch.empty_like(numbers)
    copy = partial(other.copy_, numbers)
    seconds = median_seconds({'copy': copy}, sizes.repeats)['copy']
    speed = 2 * numbers.nbytes / seconds
    yield f'A copy reads and writes {speed / 1e9:.0f} GB/s.'
