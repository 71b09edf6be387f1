# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Refuses checkpoints with content that no reader can use."""

import os
from collections.abc import Iterator

import torch
from torch import Tensor

from .errors import CheckpointError
from .record import broken_entry

# The content may be at most this many times as large as the file. PyTorch does
# not compress; files that were compressed later stay far below this.
MOST_PACKED = 50
# The largest number and nesting depth of containers in a file. Files of the
# largest encoders have a few thousand containers, nested ten deep.
MOST_CONTAINERS, MOST_DEPTH = 2**20, 100
_KEYS = str | int | float | None


def check_content(checkpoint: dict, path: str) -> None:
    """Refuse a checkpoint with content that no reader can use.

    Args:
        checkpoint (dict): What was read from the file. It may have any
            content.
        path (str): The file.

    Raises:
        CheckpointError: If ``state_dict`` is not a dict, a tensor is not a
            plain dense one, the tensors are larger than the file can hold,
            there are too many containers or too deeply nested ones, or this
            package's record has an entry that cannot be used.
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
            f'{path} has tensors of {total} bytes, more than a file of '
            'its size can hold'
        )
    if broken := broken_entry(checkpoint.get('meta')):
        raise CheckpointError(f'{path} has a broken meta.mmmoca: {broken}')


def _tensors(content: object, path: str) -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors in nested containers, each named by its place.

    The depth and the number of the containers are limited, because readers
    walk through containers, compare them and print them. With a container that
    contains itself, this would never end. With thirty nested tuples, each of
    which contains the next one twice, it would take 2**30 steps.
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
                    f'{path} is refused: it has more than {MOST_CONTAINERS} '
                    'containers, or they are nested more than '
                    f'{MOST_DEPTH} deep'
                )
            keys = value if isinstance(value, dict) else range(len(value))
            for key in keys:
                if not isinstance(key, _KEYS):
                    raise CheckpointError(
                        f'{path} is refused: one of its keys is a '
                        f'{type(key).__name__}, not a number or text'
                    )
                left.append((f'{name}.{key}', depth + 1, value[key]))


def _problem(tensor: Tensor) -> str | None:
    """Return why a tensor is not a plain dense one, or None."""
    if tensor.is_meta:
        return 'a tensor without values (device meta)'
    if tensor.is_nested or tensor.layout != torch.strided:
        return 'a sparse or nested tensor'
    if tensor.is_quantized:
        return 'a quantised tensor'
    held = tensor.untyped_storage().nbytes()
    if tensor.numel() * tensor.element_size() > held:
        return f'an expanded tensor: {tuple(tensor.shape)} in {held} bytes'
    return None
