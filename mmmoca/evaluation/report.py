# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Writes results as a table."""

from collections.abc import Sequence

from mmmoca.messages import printable


def render_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as text, in Markdown.

    Args:
        columns (Sequence[str]): Headings.
        rows (Sequence[Sequence[str]]): Cells, row by row.

    Returns:
        str: Lines that each end in a line break. The first column is aligned
        to the left, all further columns to the right.
    """
    rows = [[_cell(text) for text in row] for row in (columns, *rows)]
    widths = [max(3, *map(len, column)) for column in zip(*rows)]
    rows.insert(
        1, ['-' * widths[0], *('-' * (w - 1) + ':' for w in widths[1:])]
    )
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *map(str.rjust, others, widths[1:])]
        lines.append(f'| {" | ".join(cells)} |\n')
    return ''.join(lines)


def _cell(text: str) -> str:
    """Escape a text, so that Markdown shows it as it is."""
    return printable(text).replace('|', '\\|').replace('<', '&lt;')
