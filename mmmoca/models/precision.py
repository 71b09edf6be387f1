# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Full precision inside autocast regions.

The assignments' softmax multiplies cosines by about 20, which turns bf16's
rounding into logit errors of 0.08; and autocast on a CPU returns softmax and
normalize in bf16 even for float32 arguments. So similarities, softmaxes and
losses leave autocast explicitly.

On a GPU the objective's large products may be TF32, with float32's range and
float16's mantissa, which is what the authors' code takes them in: a logit
error of 0.0014, for about a seventh of the time.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import mm_flop, register_flop_formula

__all__ = [
    'add_product',
    'at_least_fp32',
    'no_autocast',
    'normalize_fp32',
    'product',
    'tf32_allowed',
    'tf32_mm',
]


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


@contextmanager
def tf32_allowed() -> Iterator[None]:
    """Context in which GPUs may take float32 products in TF32.

    What the user had set is in force again after it.
    """
    settings = torch.backends.cuda.matmul
    # PyTorch 2.9 has a setting more, and refuses to read the old one where
    # somebody has written the new one.
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


# An operator of its own: torch.compile can neither trace the setting nor
# leave it out.
@torch.library.custom_op('mmmoca::tf32_mm', mutates_args=())
def tf32_mm(first: Tensor, second: Tensor) -> Tensor:
    """Matrix product, in TF32 where the GPU knows it, (n, k) (k, m)."""
    with tf32_allowed():
        return torch.mm(first, second)


@tf32_mm.register_fake
def _(first: Tensor, second: Tensor) -> Tensor:
    return first.new_empty(first.shape[0], second.shape[1])


register_flop_formula(torch.ops.mmmoca.tf32_mm, get_raw=True)(mm_flop)


def product(
    first: Tensor, second: Tensor, tf32: bool, out: Tensor | None = None
) -> Tensor:
    """Matrix product in TF32 or, as elsewhere, in the tensors' own type.

    Args:
        first (Tensor): (n, k).
        second (Tensor): (k, m).
        tf32 (bool): Whether to take it in TF32, on a GPU. What a GPU without
            TF32 is to do is up to PyTorch, that is float32.
        out (Tensor, optional): Memory for the result, if not ``tf32``.

    Returns:
        Tensor: (n, m).
    """
    if tf32:
        return tf32_mm(first, second)
    return torch.mm(first, second, out=out)


def add_product(
    total: Tensor, first: Tensor, second: Tensor, tf32: bool
) -> None:
    """Add what :func:`product` gives to ``total``, (n, m), in place."""
    if tf32:
        total.add_(tf32_mm(first, second))
    else:
        # Not `addmm_`, which PyTorch's counter of operations does not know.
        torch.addmm(total, first, second, out=total)
