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


def peak_speed(
    device_name: str, dtype: torch.dtype, tf32: bool = False
) -> float | None:
    """Operations a second of a device at most, or None if not known.

    Args:
        device_name (str): As PyTorch calls it.
        dtype (torch.dtype): Of a product's factors.
        tf32 (bool): Whether float32 may be TF32. Defaults to False.

    Returns:
        float | None: Of dense products.
    """
    peaks = next((p for k, p in PEAKS.items() if k in device_name), None)
    if peaks is None:
        return None
    if dtype != torch.float32:
        return peaks.half * 1e12
    return (peaks.tf32 if tf32 else peaks.fp32) * 1e12
