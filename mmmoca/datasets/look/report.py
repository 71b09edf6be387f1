# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Prints the report on data sets: in a terminal, a log or a notebook."""

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH = 100  # characters per line in a log


@dataclass
class Section:
    """A table about images, masks or boxes, and what stands out in it.

    Attributes:
        title (str): What the table is about.
        columns (list[str]): Headings of the columns. The first column names
            the rows.
        rows (list[list[str]]): The cells of each row, one for each column.
        odd (list[str]): What stands out, one sentence each.
        wrong (list[str]): What a run cannot use, one sentence each.
    """

    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Look:
    """The report of :func:`mmmoca.look` about data sets.

    It prints as tables and sentences. A notebook also displays them.

    Args:
        sections (list[Section]): The tables of the report.
        named (frozenset[str]): Unreadable images that the report names.
            Defaults to none.
    """

    def __init__(
        self, sections: list[Section], named: frozenset[str] = frozenset()
    ) -> None:
        self.sections = sections
        self.named = named

    @property
    def odd(self) -> list[str]:
        """list[str]: What stands out, one sentence each."""
        return [line for section in self.sections for line in section.odd]

    @property
    def wrong(self) -> list[str]:
        """list[str]: What a run cannot use, one sentence each."""
        return [line for section in self.sections for line in section.wrong]

    def __rich__(self) -> 'RenderableType':
        """Return the tables and then the sentences, for rich to print."""
        from rich.box import SIMPLE
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        parts: list[RenderableType] = []
        for section in self.sections:
            table = Table(
                title=section.title, title_justify='left', box=SIMPLE
            )
            for number, column in enumerate(section.columns):
                table.add_column(column, overflow='fold', no_wrap=not number)
            for row in section.rows:
                table.add_row(*map(Text, row))  # no markup
            parts.append(table)
        parts += [Text(f'! {line}') for line in self.wrong]
        parts += [Text(f'- {line}') for line in self.odd]
        return Group(*parts)

    def show(self) -> None:
        """Print the report; in a file or pipe, each sentence is one line."""
        from rich.console import Console

        Console().print(self, soft_wrap=True)

    def __str__(self) -> str:
        return self._printed()

    def __repr__(self) -> str:
        """Return the report as text, which a Python prompt shows."""
        return str(self)

    def _repr_html_(self) -> str:
        """Return the tables and the sentences for a notebook, as HTML."""
        return self._printed(html=True)

    def _printed(self, html: bool = False) -> str:
        from rich.console import Console

        console = Console(file=io.StringIO(), record=True, width=WIDTH)
        console.print(self, soft_wrap=not html)
        if html:
            return console.export_html(
                inline_styles=True, code_format='<pre>{code}</pre>'
            )
        lines = console.export_text().splitlines()
        return '\n'.join(line.rstrip() for line in lines)
