# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Results as a table and as files that appear whole or not at all."""

import io
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

__all__ = ['render_table', 'write_json', 'write_whole']


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
        table.add_column(column, justify='right' if number else 'left')
    for row in rows:
        table.add_row(*row)
    # Wide enough for any table: a log file has no width.
    console = Console(file=io.StringIO(), width=1000, color_system=None)
    console.print(table)
    lines = console.file.getvalue().splitlines()
    return ''.join(f'{line.rstrip()}\n' for line in lines if line.strip())


def write_whole(path: str | Path, write: Callable[[Path], None]) -> None:
    """Let a file appear when it is complete, in the place of an older one.

    Args:
        path (str | Path): The file; its folder is made if need be.
        write (Callable): Writes to the path that it is given, which has the
            same ending.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A folder of its own beside the target: on the same file system, and
    # whatever a failure leaves in it is removed.
    with tempfile.TemporaryDirectory(
        prefix=f'.{path.name}-', dir=path.parent
    ) as folder:
        temporary = Path(folder) / path.name
        write(temporary)
        os.replace(temporary, path)


def write_json(path: str | Path, data: dict) -> None:
    """Write a JSON file, whole or not at all.

    Args:
        path (str | Path): The file.
        data (dict): What json can write.
    """
    text = json.dumps(data, indent=2) + '\n'
    write_whole(path, lambda temporary: temporary.write_text(text))
