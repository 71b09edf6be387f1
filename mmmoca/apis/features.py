# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features of images, by kind, and when there are none."""

from collections.abc import Mapping
from numbers import Integral
from typing import NamedTuple

import torch
from torch import Tensor

KINDS = ('cls', 'avg', 'patches', 'raw_cls', 'raw_avg')


def check_batch_size(batch_size: int) -> None:
    """Refuse a number of images at a time that is no whole one above 0."""
    if not isinstance(batch_size, Integral) or batch_size < 1:
        raise ValueError(
            'batch_size must be a whole number, 1 or more, but got '
            f'{batch_size}'
        )


def refuse(errors: Mapping[int, Exception], skip_unreadable: bool) -> None:
    """Raise what is wrong with images, unless they may be skipped."""
    for error in errors.values():
        if not isinstance(error, OSError):
            raise error
        if not skip_unreadable:
            raise type(error)(
                f'{error}. Take it out, or write skip_unreadable=True '
                '(--skip-unreadable) for NaN in its place'
            ) from error


class Embeddings(NamedTuple):
    """Features, after the final norm unless they are raw.

    Attributes:
        cls (Tensor, optional): [CLS], (N, D).
        avg (Tensor, optional): [AVG], the mean patch token, (N, D).
        patches (Tensor, optional): Patch tokens as a map, (N, D, h, w).
        paths (list[str], optional): Path of each image, None of those in
            memory.
        raw_cls (Tensor, optional): [CLS] before the final norm, (N, D).
        raw_avg (Tensor, optional): The mean patch token before it, (N, D).
    """

    cls: Tensor | None = None
    avg: Tensor | None = None
    patches: Tensor | None = None
    paths: list[str | None] | None = None
    raw_cls: Tensor | None = None
    raw_avg: Tensor | None = None

    def __repr__(self) -> str:
        """Return the shapes of what is there, and the number of paths."""
        shapes = [
            f'{name}={tuple(value.shape)}'
            if isinstance(value, Tensor)
            else f'{name}={len(value)}'
            for name, value in self._asdict().items()
            if value is not None
        ]
        return f'Embeddings({", ".join(shapes)})'

    def pick(self, feature: str) -> Tensor:
        """Return one kind, or several that are concatenated: 'cls-avg' say."""
        parts = [getattr(self, part) for part in feature.split('-')]
        return torch.cat(parts, dim=1)
