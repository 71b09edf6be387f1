# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What GPUs can compute at most, by their data sheets."""

from typing import NamedTuple

import torch


class Peaks(NamedTuple):
    """Dense operations a second, in units of 10^12."""

    half: float
    tf32: float
    fp32: float


# NVIDIA's data sheets; those with sparsity are halved. The first name that
# is part of the device's counts.
PEAKS = {
    'H100 PCIe': Peaks(756, 378, 51),
    'H100 NVL': Peaks(835, 417, 60),
    'H200 NVL': Peaks(835, 417, 60),
    'H100': Peaks(989, 494, 67),
    'H200': Peaks(989, 494, 67),
    'A100': Peaks(312, 156, 19.5),
}


def peak_speed(device_name: str, dtype: torch.dtype) -> float | None:
    """Operations a second of a device at most, or None if not known.

    Float32 is that of TF32 where PyTorch may use it.
    """
    peaks = next((p for k, p in PEAKS.items() if k in device_name), None)
    if peaks is None:
        return None
    if dtype != torch.float32:
        return peaks.half * 1e12
    exact = torch.get_float32_matmul_precision() == 'highest'
    return (peaks.fp32 if exact else peaks.tf32) * 1e12
