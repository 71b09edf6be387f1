# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images and those nearest to them, on one sheet."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from .blocks import draw_blocks

__all__ = ['draw_contact_sheet']


def draw_contact_sheet(
    queries: Sequence[np.ndarray],
    found: Sequence[Sequence[np.ndarray]],
    names: Sequence[str] | None = None,
) -> Figure:
    """Draw a row for each query: the image, then its nearest ones.

    Args:
        queries (Sequence[np.ndarray]): Pictures, (H, W, 3) in [0, 1], all of
            one size.
        found (Sequence[Sequence[np.ndarray]]): Pictures of the nearest
            images of each, best first.
        names (Sequence[str], optional): What each row is called.

    Returns:
        Figure: To be written by its ``savefig``.
    """
    height, width = queries[0].shape[:2]
    columns = [str(1 + i) for i in range(max(map(len, found)))]
    blocks = [
        ('image', [''], [[picture] for picture in queries]),
        ('nearest images', columns, found),
    ]
    return draw_blocks(blocks, [None, None], names, height / width)
