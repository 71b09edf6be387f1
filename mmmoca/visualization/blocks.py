# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Rows of pictures in titled blocks."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

CELL = 0.92  # width of a picture in inches; other lengths are in cells
GAP, BLOCK_GAP = 0.05, 0.3
LEFT, RIGHT, TOP, BOTTOM = 0.75, 0.12, 0.82, 0.42
FRAMES = {True: '#2a9d4a', False: '#d1495b'}
TEXT = '#222222'
SHARP = 256  # side in pixels from which pictures are not smoothed


def draw_blocks(
    blocks: Sequence[tuple[str, list[str], list]],
    frames: Sequence[Sequence[Sequence[bool]] | None],
    names: Sequence[str] | None,
    aspect: float,
    legend: str = '',
) -> Figure:
    """Draw blocks of pictures side by side, with a row for each image.

    Args:
        blocks (Sequence[Tuple[str, List[str], List]]): Title of each block,
            titles of its columns, and rows of pictures, (H, W, 3). A row may
            have fewer pictures than there are columns.
        frames (Sequence[Sequence[Sequence[bool]] | None]): For each picture
            of a block True for a green frame and False for a red one. None
            for a block without frames.
        names (Sequence[str], optional): Names of the rows.
        aspect (float): Height of a picture divided by its width.
        legend (str): Text below the pictures.

    Returns:
        Figure: The figure.
    """
    # Lengths are in cells.
    count = len(blocks[0][2])
    columns = [len(titles) for _, titles, _ in blocks]
    left = LEFT if names else RIGHT
    widths = [n + (n - 1) * GAP for n in columns]
    width = left + sum(widths) + BLOCK_GAP * (len(blocks) - 1) + RIGHT
    height = TOP + BOTTOM + count * aspect + (count - 1) * GAP
    figure = Figure((width * CELL, height * CELL), facecolor='white')

    def text(x: float, y: float, label: str, **style) -> None:
        style = dict(color=TEXT, fontsize=8.5, ha='center') | style
        figure.text(x / width, 1 - y / height, label, **style)

    start = left
    for (title, titles, rows), correct, span in zip(blocks, frames, widths):
        text(start + span / 2, TOP - 0.42, title, fontsize=10.5, weight='bold')
        for column, label in enumerate(titles):
            x = start + column * (1 + GAP)
            text(x + 0.5, TOP - 0.12, label)
            for row, pictures in enumerate(rows):
                if column >= len(pictures):
                    continue
                y = TOP + row * (aspect + GAP) + aspect
                axes = figure.add_axes(
                    [x / width, 1 - y / height, 1 / width, aspect / height]
                )
                frame = correct and FRAMES[bool(correct[row][column])]
                _show(axes, pictures[column], frame)
        start += span + BLOCK_GAP
    for row, name in enumerate(names or ()):
        y = TOP + row * (aspect + GAP) + aspect / 2
        text(left - 0.1, y, name, ha='right', va='center')
    text(left, height - BOTTOM / 3, legend, ha='left')
    return figure


def _show(axes: Axes, picture: np.ndarray, frame: str | None) -> None:
    axes.set(xticks=[], yticks=[])
    small = 2 * max(picture.shape[:2]) <= SHARP
    axes.imshow(
        picture,
        interpolation='bicubic' if small else 'antialiased',
        aspect='auto',
    )
    axes.spines[:].set_visible(frame is not None)
    axes.spines[:].set(color=frame, linewidth=2.2)
