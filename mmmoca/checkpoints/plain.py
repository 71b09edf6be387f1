# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checks that a checkpoint holds nothing but what can be used."""

import os
from collections.abc import Iterator

import torch
from torch import Tensor

from .errors import CheckpointError
from .record import broken_entry

# PyTorch does not compress. What was compressed later stays far below this.
MOST_PACKED = 50
# Files of the largest encoders have some thousand, and are ten deep.
MOST_CONTAINERS, MOST_DEPTH = 2**20, 100
_KEYS = str | int | float | None


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
    for name, tensor in _tensors(checkpoint, path):
        if problem := _problem(tensor):
            raise CheckpointError(
                f'{path} has {name}, {problem}: save plain tensors'
            )
        total += tensor.nbytes
    if total > MOST_PACKED * os.path.getsize(path):
        raise CheckpointError(
            f'{path} has tensors of {total} bytes, more than it holds'
        )
    if broken := broken_entry(checkpoint.get('meta')):
        raise CheckpointError(f'{path} has a broken meta.mmmoca: {broken}')


def _tensors(content: object, path: str) -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors in nested containers, with their places as names.

    Readers walk through containers, compare and print them. A tuple that
    holds another one twice, thirty times over, would keep them busy for ever,
    and so would one that holds itself.
    """
    left, visited = [('', 0, content)], 0
    while left:
        name, depth, value = left.pop()
        if isinstance(value, Tensor):
            yield name.removeprefix('.'), value
        elif isinstance(value, dict | list | tuple):
            visited += 1
            if depth > MOST_DEPTH or visited > MOST_CONTAINERS:
                raise CheckpointError(
                    f'{path} is refused: its containers are nested deeper '
                    f'than {MOST_DEPTH} times, or more than {MOST_CONTAINERS}'
                )
            keys = value if isinstance(value, dict) else range(len(value))
            for key in keys:
                if not isinstance(key, _KEYS):
                    raise CheckpointError(
                        f'{path} is refused: a key in it is a '
                        f'{type(key).__name__}, no number or text'
                    )
                left.append((f'{name}.{key}', depth + 1, value[key]))


def _problem(tensor: Tensor) -> str | None:
    """Say why a tensor has no number of its own for each element."""
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
