# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Results as a table."""

import io
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mmmoca.messages import printable


def render_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as text, in Markdown.

    Args:
        columns (Sequence[str]): Headings.
        rows (Sequence[Sequence[str]]): Cells, row by row.

    Returns:
        str: Lines that end in a line break each, the first column aligned to
        the left and the others to the right.
    """
    table = Table(box=box.MARKDOWN)
    for number, column in enumerate(columns):
        table.add_column(_cell(column), justify='right' if number else 'left')
    for row in rows:
        table.add_row(*map(_cell, row))
    # Wide enough for any table: a log file has no width.
    console = Console(file=io.StringIO(), width=1000, color_system=None)
    console.print(table)
    lines = console.file.getvalue().splitlines()
    return ''.join(f'{line.rstrip()}\n' for line in lines if line.strip())


def _cell(text: str) -> Text:
    """A name as it is, whatever rich and Markdown would make of it."""
    return Text(printable(text).replace('|', '\\|').replace('<', '&lt;'))
