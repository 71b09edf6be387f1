# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features of images, and errors for images without features."""

from collections.abc import Mapping
from numbers import Integral
from typing import NamedTuple

import torch
from torch import Tensor

KINDS = ('cls', 'avg', 'patches', 'raw_cls', 'raw_avg')


def check_batch_size(batch_size: int) -> None:
    """Refuse a batch size that is not a whole number above 0."""
    if not isinstance(batch_size, Integral) or batch_size < 1:
        raise ValueError(
            'batch_size must be a whole number, 1 or more, but got '
            f'{batch_size}'
        )


def refuse(errors: Mapping[int, Exception], skip_unreadable: bool) -> None:
    """Raise the first error that may not be skipped.

    Only ``OSError`` may be skipped: it says that an image cannot be read.
    """
    for error in errors.values():
        if not isinstance(error, OSError):
            raise error
        if not skip_unreadable:
            raise type(error)(
                f'{error}. Remove the image, or write skip_unreadable=True '
                '(--skip-unreadable) to get NaN in its place'
            ) from error


class Embeddings(NamedTuple):
    """Features of images. Those that were not asked for are None.

    Attributes:
        cls (Tensor, optional): [CLS], (N, D), after the final norm.
        avg (Tensor, optional): [AVG], the mean patch token after the final
            norm, (N, D).
        patches (Tensor, optional): Patch tokens after the final norm, as a
            map, (N, D, h, w).
        paths (list[str | None], optional): Path of each image, or None for an
            image in memory.
        raw_cls (Tensor, optional): [CLS] before the final norm, (N, D).
        raw_avg (Tensor, optional): Mean patch token before the final norm,
            (N, D).
    """

    cls: Tensor | None = None
    avg: Tensor | None = None
    patches: Tensor | None = None
    paths: list[str | None] | None = None
    raw_cls: Tensor | None = None
    raw_avg: Tensor | None = None

    def __repr__(self) -> str:
        """Return the shapes of the features, and the number of paths."""
        shapes = [
            f'{name}={tuple(value.shape)}'
            if isinstance(value, Tensor)
            else f'{name}={len(value)}'
            for name, value in self._asdict().items()
            if value is not None
        ]
        return f'Embeddings({", ".join(shapes)})'

    def pick(self, feature: str) -> Tensor:
        """Return one feature, or several concatenated, as in 'cls-avg'."""
        parts = [getattr(self, part) for part in feature.split('-')]
        return torch.cat(parts, dim=1)
