# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Rows of pictures in titled blocks."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

CELL = 0.92  # width of a picture with its margin, in inches
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
    count = len(blocks[0][2])
    widths = [len(titles) + 0.2 for _, titles, _ in blocks]
    widths[0] += 0.9 * bool(names)
    figure = Figure(
        (CELL * sum(widths), CELL * (count * aspect + 1.2)),
        layout='constrained',
        facecolor='white',
    )
    figure.get_layout_engine().set(w_pad=0.01, h_pad=0.02)
    figure.supxlabel(legend, fontsize=8.5, color=TEXT)
    parts = figure.subfigures(1, len(blocks), width_ratios=widths)
    for part, (title, titles, rows), correct in zip(parts, blocks, frames):
        part.suptitle(title, fontsize=10.5, weight='bold', color=TEXT)
        grid = part.subplots(count, len(titles), squeeze=False)
        for (row, column), axes in np.ndenumerate(grid):
            if row == 0:  # a blank keeps the rows of all blocks level
                axes.set_title(titles[column] or ' ', fontsize=8.5, color=TEXT)
            if column < len(rows[row]):
                frame = correct and FRAMES[bool(correct[row][column])]
                _show(axes, rows[row][column], frame)
            else:
                axes.set_axis_off()
        if part is parts[0]:
            for axes, name in zip(grid[:, 0], names or ()):
                axes.set_anchor('E')
                axes.set_ylabel(
                    name, rotation=0, ha='right', va='center', fontsize=8.5
                )
    return figure


def _show(axes: Axes, picture: np.ndarray, frame: str | None) -> None:
    axes.set(xticks=[], yticks=[])
    small = 2 * max(picture.shape[:2]) <= SHARP
    smoothing = 'bicubic' if small else 'antialiased'
    axes.imshow(picture, interpolation=smoothing)
    axes.spines[:].set_visible(frame is not None)
    axes.spines[:].set(color=frame, linewidth=2.2)
