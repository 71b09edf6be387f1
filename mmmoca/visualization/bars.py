# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Bar charts that compare several checkpoints."""

from collections.abc import Sequence
from textwrap import fill

from matplotlib.figure import Figure

from mmmoca.messages import printable

from .pictures import COLORS


def draw_bars(
    names: Sequence[str],
    panels: dict[str, list[tuple[float, str]]],
    title: str = '',
) -> Figure:
    """Draw a panel for each measure, with a bar for each checkpoint.

    Args:
        names (Sequence[str]): Names of the checkpoints.
        panels (dict[str, list[tuple[float, str]]]): Title -> for each
            checkpoint, the length of its bar and the text at its end. Each
            panel has its own scale, which starts at 0.
        title (str): Title of the figure.

    Returns:
        Figure: The figure.
    """
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    labels = [fill(printable(name), 26) for name in names]
    lines = max(1.7, *(label.count('\n') + 1 for label in labels))
    height = 0.5 + 0.17 * lines * len(names)
    size = 1.2 + 2.3 * columns, height * rows + 0.3
    figure = Figure(size, layout='constrained')
    figure.suptitle(title, fontsize=9.5)
    figure.get_layout_engine().set(hspace=0.08)
    axes = figure.subplots(rows, columns, sharey=True, squeeze=False).flat
    for panel, head in zip(axes, panels):
        panel.set_title(head, fontsize=10.5, weight='bold', loc='left')
        values, texts = zip(*panels[head])
        colors = [COLORS[i % len(COLORS)] for i in range(len(names))]
        bars = panel.barh(range(len(names)), values, color=colors)
        panel.bar_label(bars, texts, padding=3, fontsize=9)
        room = 1 + 0.09 * max(map(len, texts))
        panel.set_xlim(0, max(*values, 1e-3) * room)
        panel.set_xticks([])
        panel.set_yticks(range(len(names)), labels, fontsize=9)
        panel.tick_params(length=0)
        panel.spines[['top', 'right', 'bottom']].set_visible(False)
    # The panels share this axis. The first checkpoint is on top.
    axes[0].invert_yaxis()
    for panel in list(axes)[len(panels) :]:
        panel.set_visible(False)
    return figure
