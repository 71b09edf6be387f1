# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Whether what a checkpoint holds can be used, before anything uses it."""

import math
import os
from collections.abc import Iterator
from numbers import Real

import torch
from torch import Tensor

from .errors import CheckpointError

# PyTorch does not compress. What was compressed later stays far below this.
MOST_PACKED = 50
# What a record has, see `run_record`. Other keys are not used.
_DICTS = 'mmmoca', 'preprocessing', 'loader'
_TEXTS = 'layout', 'channel_order', 'interpolation', 'backend'
_NUMBERS = 'num_heads', 'resize', 'cropped'
_LISTS = 'mean', 'std'  # of numbers


def check_content(checkpoint: dict, path: str) -> None:
    """Refuse a checkpoint with something that no reader of it can use.

    Args:
        checkpoint (dict): What was read, of any content.
        path (str): Its file.

    Raises:
        CheckpointError: If its state is no dict, a tensor is not a plain one,
            the tensors are larger than what the file can hold, or the record
            of this package has settings of another kind.
    """
    state = checkpoint.get('state_dict', {})
    if not isinstance(state, dict):
        raise CheckpointError(
            f'{path} has a {type(state).__name__} as state_dict, not a dict'
        )
    total = 0
    for name, tensor in _tensors(checkpoint):
        if problem := _problem(tensor):
            raise CheckpointError(
                f'{path} has {name}, {problem}: save plain tensors'
            )
        total += tensor.nbytes
    if total > MOST_PACKED * os.path.getsize(path):
        raise CheckpointError(
            f'{path} has tensors of {total} bytes, more than it holds'
        )
    if broken := _broken_record(checkpoint.get('meta')):
        raise CheckpointError(f'{path} has a broken meta.mmmoca: {broken}')


def _tensors(content: object) -> Iterator[tuple[str, Tensor]]:
    """All tensors in nested containers, with their places as names."""
    seen, left = set(), [('', content)]
    while left:
        name, value = left.pop()
        if isinstance(value, Tensor):
            yield name.removeprefix('.'), value
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))  # a container may hold itself
            keys = value if isinstance(value, dict) else range(len(value))
            left += [(f'{name}.{key}', value[key]) for key in keys]


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


def _broken_record(meta: object) -> str | None:
    """The first setting of ``meta.mmmoca`` that is of another kind."""
    record = meta.get('mmmoca') if isinstance(meta, dict) else None
    known = record.get('preprocessing') if isinstance(record, dict) else None
    for part in (dict(mmmoca=record), record or {}, known or {}):
        for key, value in part.items():
            if value is not None and not _is_usable(key, value):
                return f'{key}={str(value)[:80]!r}'
    return None


def _is_usable(key: object, value: object) -> bool:
    if key in _DICTS:
        return isinstance(value, dict)
    if key in _TEXTS:
        return isinstance(value, str)
    if key == 'grid':
        pair = isinstance(value, list | tuple) and len(value) == 2
        return pair and all(type(n) is int and n > 0 for n in value)
    if key not in _NUMBERS + _LISTS:
        return True
    numbers = [value] if key in _NUMBERS else value
    lowest = -math.inf if key == 'mean' else 0
    return isinstance(numbers, list | tuple) and all(
        isinstance(n, Real) and lowest < n < math.inf for n in numbers
    )
