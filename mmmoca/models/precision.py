# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Full precision inside autocast regions.

The softmax of assignments multiplies cosines by about 20, so that rounding to
bf16 causes a logit error of 0.08. Autocast computes matrix products in bf16
even for float32 arguments. On a CPU, it leaves the softmax and the
normalisation of a bf16 tensor in bf16. Similarities, softmaxes and losses are
therefore computed outside autocast.

On a GPU the objective's large products may use TF32, as in the authors' code.
TF32 has float32's range and float16's mantissa. The logit error is 0.0014, and
the products take about a seventh of float32's time.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import mm_flop, register_flop_formula


def no_autocast(tensor: Tensor) -> AbstractContextManager:
    """Return a context without autocast on the tensor's device."""
    return torch.autocast(device_type=tensor.device.type, enabled=False)


def at_least_fp32(tensor: Tensor) -> Tensor:
    """Convert to float32, or keep float64."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def normalize_fp32(tensor: Tensor, eps: float = 1e-12) -> Tensor:
    """L2-normalise the last dimension in at least float32.

    Args:
        tensor (Tensor): (..., D) of any float dtype.
        eps (float): Smallest divisor. Defaults to 1e-12.

    Returns:
        Tensor: Unit rows, (..., D), float32 or float64.
    """
    with no_autocast(tensor):
        return F.normalize(at_least_fp32(tensor), dim=-1, eps=eps)


@contextmanager
def tf32_allowed() -> Iterator[None]:
    """Let GPUs use TF32 for float32 products, within the context."""
    settings = torch.backends.cuda.matmul
    # PyTorch 2.9 has a new setting. Once it has been written, the old one can
    # no longer be read.
    name = 'fp32_precision'
    name = name if hasattr(settings, name) else 'allow_tf32'
    before = getattr(settings, name)
    if before in ('tf32', True):
        yield
        return
    settings.allow_tf32 = True
    try:
        yield
    finally:
        settings.allow_tf32 = False
        setattr(settings, name, before)


# A custom operator, since torch.compile cannot trace the setting.
@torch.library.custom_op('mmmoca::tf32_mm', mutates_args=())
def tf32_mm(first: Tensor, second: Tensor) -> Tensor:
    """Multiply (n, k) by (k, m), in TF32 if the GPU supports it."""
    with tf32_allowed():
        return torch.mm(first, second)


@tf32_mm.register_fake
def _(first: Tensor, second: Tensor) -> Tensor:
    return first.new_empty(first.shape[0], second.shape[1])


register_flop_formula(torch.ops.mmmoca.tf32_mm, get_raw=True)(mm_flop)


def product(
    first: Tensor, second: Tensor, tf32: bool, out: Tensor | None = None
) -> Tensor:
    """Multiply matrices in TF32 or in their own type.

    Args:
        first (Tensor): (n, k).
        second (Tensor): (k, m).
        tf32 (bool): Whether to use TF32. GPUs without it use float32.
        out (Tensor, optional): Memory for the result. Not used with
            ``tf32``.

    Returns:
        Tensor: (n, m).
    """
    if tf32:
        return tf32_mm(first, second)
    return torch.mm(first, second, out=out)


def add_product(
    total: Tensor, first: Tensor, second: Tensor, tf32: bool
) -> None:
    """Add the :func:`product` of two matrices to ``total`` in place."""
    if tf32:
        total.add_(tf32_mm(first, second))
    else:
        # PyTorch's flop counter does not know `addmm_`.
        torch.addmm(total, first, second, out=total)
