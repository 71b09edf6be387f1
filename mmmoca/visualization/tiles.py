# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Panels of pictures, side by side in one figure."""

from collections.abc import Sequence
from textwrap import fill
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from .pictures import SHARP

# In inches. TILE is the width of a picture, GAP the space between pictures,
# and GUTTER the space between panels.
TILE, GAP, GUTTER = 0.92, 0.06, 0.4
HEADER, FOOTER, NAMES = 1.15, 0.4, 1.5
FRAMES = {True: '#2a9d4a', False: '#d1495b'}
TEXT = '#222222'


class Panel(NamedTuple):
    """Columns of pictures with a title.

    Attributes:
        title (str): The title.
        columns (list[str]): Titles of the columns.
        rows (list[list[np.ndarray]]): Pictures, (H, W, 3). A row may have
            fewer pictures than there are columns.
        same_class (list[list[bool]], optional): For each picture, True gives
            a green frame and False a red one.
    """

    title: str
    columns: list[str]
    rows: list[list[np.ndarray]]
    same_class: list[list[bool]] | None = None


def draw_tiles(
    panels: Sequence[Panel],
    names: Sequence[str],
    aspect: float,
    title: str = '',
    legend: str = '',
) -> Figure:
    """Draw panels side by side, with a row for each image.

    Args:
        panels (Sequence[Panel]): The panels, all with the same number of rows.
        names (Sequence[str]): Names of the rows.
        aspect (float): Height of a picture divided by its width.
        title (str): Text at the top.
        legend (str): Text below the pictures.

    Returns:
        Figure: The figure. All pictures have the same size.
    """
    widths = [len(p.columns) * (TILE + GAP) - GAP + GUTTER for p in panels]
    tall = len(names) * (TILE * aspect + GAP) - GAP
    height = HEADER + tall + FOOTER
    figure = Figure((NAMES + sum(widths), height), facecolor='white')
    style = dict(color=TEXT, fontsize=8.5)
    left, *parts = figure.subfigures(
        1, 1 + len(panels), wspace=0, width_ratios=[NAMES, *widths]
    )
    start = 1 + GUTTER / 2 / NAMES
    left.text(start, 1 - 0.2 / height, title, va='center', **style)
    left.text(start, FOOTER / 2 / height, legend, va='center', **style)
    for part, panel, width in zip(parts, panels, widths):
        heading = fill(panel.title, 12 * len(panel.columns))
        bold = dict(fontsize=10.5, weight='bold', va='center', color=TEXT)
        part.suptitle(heading, y=1 - 0.6 / height, **bold)
        # All pictures of a panel share one Axes: each additional Axes would
        # cost as much time as several pictures.
        axes = part.add_axes(
            (
                GUTTER / 2 / width,
                FOOTER / height,
                1 - GUTTER / width,
                tall / height,
            )
        )
        _draw_panel(panel, axes, TILE * aspect, style)
        if part is parts[0]:
            for row, name in enumerate(names):
                middle = row * (TILE * aspect + GAP) + TILE * aspect / 2
                label = dict(ha='right', va='center', **style)
                axes.text(-GAP, middle, name, **label)
        # Coordinates are in inches, from the top.
        axes.set(xlim=(0, width - GUTTER), ylim=(tall, 0))
        axes.set_axis_off()
    return figure


def _draw_panel(panel: Panel, axes: Axes, tile: float, style: dict) -> None:
    """Draw the pictures of a panel, ``tile`` inches high, side by side."""
    for column, text in enumerate(panel.columns):
        middle = column * (TILE + GAP) + TILE / 2
        axes.text(middle, -GAP, fill(text, 13), ha='center', **style)
    for row, pictures in enumerate(panel.rows):
        top = row * (tile + GAP)
        for column, picture in enumerate(pictures):
            left = column * (TILE + GAP)
            small = 2 * max(picture.shape[:2]) <= SHARP
            axes.imshow(
                picture,
                interpolation='bicubic' if small else 'antialiased',
                extent=(left, left + TILE, top + tile, top),
                aspect='auto',
            )
            if panel.same_class:
                color = FRAMES[panel.same_class[row][column]]
                frame = dict(color=color, fill=False, linewidth=2.2)
                axes.add_patch(
                    Rectangle((left, top), TILE, tile, clip_on=False, **frame)
                )
