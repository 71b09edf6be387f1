# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Rows of pictures in titled blocks."""

from collections.abc import Sequence
from textwrap import fill
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

# In inches: a picture's width, and the space beside one and beside a block.
TILE, GAP, GUTTER = 0.92, 0.06, 0.4
HEADER, FOOTER, NAMES = 1.15, 0.4, 1.5
FRAMES = {True: '#2a9d4a', False: '#d1495b'}
TEXT = '#222222'
SHARP = 256  # side in pixels from which pictures are not smoothed


class Block(NamedTuple):
    """Columns of pictures with a title.

    Attributes:
        title (str): The title.
        columns (list[str]): Titles of the columns.
        rows (list[list[np.ndarray]]): Pictures, (H, W, 3). A row may have
            fewer of them than there are columns.
        same_class (list[list[bool]], optional): For each picture True for a
            green frame and False for a red one.
    """

    title: str
    columns: list[str]
    rows: list[list[np.ndarray]]
    same_class: list[list[bool]] | None = None


def draw_blocks(
    blocks: Sequence[Block],
    names: Sequence[str],
    aspect: float,
    title: str = '',
    legend: str = '',
) -> Figure:
    """Draw blocks side by side, with a row for each image.

    Args:
        blocks (Sequence[Block]): The blocks, with equally many rows.
        names (Sequence[str]): Names of the rows.
        aspect (float): Height of a picture divided by its width.
        title (str): Text above all.
        legend (str): Text below the pictures.

    Returns:
        Figure: The figure. All pictures are of one size.
    """
    step = TILE + GAP
    widths = [len(block.columns) * step + GUTTER for block in blocks]
    width = NAMES + sum(widths)
    height = HEADER + len(names) * (TILE * aspect + GAP) + FOOTER
    figure = Figure((width, height), facecolor='white')

    def write(x: float, top: float, text: str, **style) -> None:
        style = dict(color=TEXT, fontsize=8.5, va='center') | style
        figure.text(x / width, 1 - top / height, text, **style)

    write(NAMES, 0.2, title, fontsize=9.5)
    write(NAMES, height - FOOTER / 2, legend)
    for row, name in enumerate(names):
        top = HEADER + row * (TILE * aspect + GAP)
        write(NAMES - 0.1, top + TILE * aspect / 2, name, ha='right')
        for place, block in enumerate(blocks):
            left = NAMES + sum(widths[:place])
            for column, picture in enumerate(block.rows[row]):
                x, y = left + column * step, height - top - TILE * aspect
                place = x / width, y / height
                size = TILE / width, TILE * aspect / height
                axes = figure.add_axes((*place, *size), xticks=[], yticks=[])
                small = 2 * max(picture.shape[:2]) <= SHARP
                smoothing = 'bicubic' if small else 'antialiased'
                axes.imshow(picture, interpolation=smoothing, aspect='auto')
                same = block.same_class and block.same_class[row][column]
                axes.spines[:].set_visible(same is not None)
                axes.spines[:].set(color=FRAMES.get(same), linewidth=2.2)
    for place, block in enumerate(blocks):
        left = NAMES + sum(widths[:place])
        style = dict(fontsize=10.5, weight='bold', ha='center')
        middle = left + (len(block.columns) * step - GAP) / 2
        write(middle, 0.6, fill(block.title, 12 * len(block.columns)), **style)
        for column, text in enumerate(block.columns):
            middle = left + column * step + TILE / 2
            write(middle, HEADER - 0.2, fill(text, 13), ha='center')
    return figure
