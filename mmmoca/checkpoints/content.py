# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Whether what a checkpoint holds can be used, before anything uses it."""

import math
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

# PyTorch does not compress. What was compressed later stays far below this.
MOST_PACKED = 50


def unusable(checkpoint: dict, size: int) -> str | None:
    """Find what in a checkpoint no reader of it can use.

    Args:
        checkpoint (dict): What was read, of any content.
        size (int): Bytes of its file.

    Returns:
        str | None: What it is, after the file's name. None if all is well.
    """
    if not isinstance(checkpoint.get('state_dict', {}), dict):
        kind = type(checkpoint['state_dict']).__name__
        return f'has a {kind} as state_dict, which must be a dict of tensors'
    claimed = 0
    for name, tensor in _tensors(checkpoint):
        problem = _problem(tensor)
        if problem is not None:
            return f'has {name}, {problem}: save plain tensors'
        claimed += tensor.numel() * tensor.element_size()
    if claimed > MOST_PACKED * size:
        return (
            f'has tensors of {claimed} bytes together, more than '
            f'{MOST_PACKED} times its size'
        )
    broken = _broken_record(checkpoint.get('meta'))
    return broken and f'has a broken record of its encoder: {broken}'


def _tensors(content: object) -> Iterator[tuple[str, Tensor]]:
    """All tensors in nested containers, with their places as names."""
    seen, left = set(), [('', content)]
    while left:
        name, value = left.pop()
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))  # a container may hold itself
            items = (
                value.items() if isinstance(value, dict) else enumerate(value)
            )
            left += [(f'{name}.{key}'.lstrip('.'), v) for key, v in items]


def _problem(tensor: Tensor) -> str | None:
    """Why a tensor does not have a number of its own for each element."""
    if tensor.is_meta:
        return 'a tensor without values (device meta)'
    if tensor.is_nested or tensor.layout != torch.strided:
        return 'a sparse or nested tensor'
    if tensor.is_quantized:
        return 'a quantised tensor'
    held = tensor.untyped_storage().nbytes()
    if tensor.numel() * tensor.element_size() > held:
        return f'an expanded tensor: {tuple(tensor.shape)} of {held} bytes'
    return None


def _is_size(value: object) -> bool:
    return isinstance(value, Integral) and value > 0


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


def _are(fits: Any, length: int | None = None) -> Any:
    return lambda value: (
        isinstance(value, list | tuple)
        and length in (None, len(value))
        and all(map(fits, value))
    )


# What a record has, see `run_record`. Other keys are not used.
_RECORD = dict(num_heads=_is_size, grid=_are(_is_size, 2))
_PREPROCESSING = dict(
    mean=_are(_is_number),
    std=_are(lambda value: _is_number(value) and value > 0),
    resize=_is_size,
    cropped=_is_size,
    loader=lambda value: isinstance(value, dict),
    **dict.fromkeys(
        ('channel_order', 'interpolation', 'backend'),
        lambda value: isinstance(value, str),
    ),
)


def _broken_record(meta: object) -> str | None:
    """The first setting of ``meta.mmmoca`` that is of another kind."""
    record = meta.get('mmmoca') if isinstance(meta, dict) else None
    record = {} if record is None else record
    if not isinstance(record, dict):
        return f'meta.mmmoca={str(record)[:80]!r}'
    known = record.get('preprocessing') or {}
    if not isinstance(known, dict):
        return f'meta.mmmoca.preprocessing={str(known)[:80]!r}'
    for settings, kinds in ((record, _RECORD), (known, _PREPROCESSING)):
        for key, fits in kinds.items():
            value = settings.get(key)
            if value is not None and not fits(value):
                return f'meta.mmmoca, {key}={str(value)[:80]!r}'
    return None
