# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Full precision inside autocast regions.

The assignments' softmax multiplies cosines by about 20, which turns bf16's
rounding into logit errors of 0.08; and autocast on a CPU returns softmax and
normalize in bf16 even for float32 arguments. So similarities, softmaxes and
losses leave autocast explicitly.
"""

from contextlib import AbstractContextManager

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ['at_least_fp32', 'no_autocast', 'normalize_fp32']


def no_autocast(tensor: Tensor) -> AbstractContextManager:
    """Context without autocast on the tensor's device."""
    return torch.autocast(device_type=tensor.device.type, enabled=False)


def at_least_fp32(tensor: Tensor) -> Tensor:
    """The tensor in float32, or in float64 if it is that already."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def normalize_fp32(tensor: Tensor, eps: float = 1e-12) -> Tensor:
    """L2-normalise the last dimension in at least float32.

    Args:
        tensor (Tensor): (..., D) of any float dtype.
        eps (float): Smallest norm divided by. Defaults to 1e-12.

    Returns:
        Tensor: Unit rows, (..., D), float32 or float64.
    """
    with no_autocast(tensor):
        return F.normalize(at_least_fp32(tensor), dim=-1, eps=eps)
