# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Tables of what the parts of gpu.py found, in Markdown."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from gpu_figures import Figures
from gpu_parts import PARTS

Parts = dict[str, list[dict]]
NOT_MEASURED = 'not measured'


class Goal(NamedTuple):
    """What a GPU of the H100's generation should reach.

    Attributes:
        text (str): The goal.
        value (Callable): What was found; raises a LookupError or a TypeError
            where that is missing or did not fit.
        met (Callable): Whether it is good enough.
    """

    text: str
    value: Callable[[Parts], float]
    met: Callable[[float], bool]


def find(parts: Parts, part: str, column: str, **values) -> float:
    """A figure of the first row that has these values.

    Raises:
        LookupError: If there is none.
        TypeError: If it is no number.
    """
    for record in parts.get(part, []):
        row = record.get('values', {})
        if column in row and values.items() <= row.items():
            return 0.0 + row[column]
    raise LookupError(column)


OURS = dict(precision='bf16', form='compiled')
AUTHORS = dict(precision='bf16', form='authors, fused attention')
GOALS = (
    Goal(
        'MFU in bf16, compiled, at least 40 %',
        lambda parts: find(parts, 'step', 'MFU %', **OURS),
        lambda value: value >= 40,
    ),
    Goal(
        "images a second, of the authors' step, at least 3 times",
        lambda parts: (
            find(parts, 'step', 'img/s', **OURS)
            / find(parts, 'reference', 'img/s', **AUTHORS)
        ),
        lambda value: value >= 3,
    ),
    Goal(
        'memory of a step, of theirs, at most 0.6',
        lambda parts: (
            find(parts, 'step', 'of it the step', **OURS)
            / find(parts, 'reference', 'step GiB', **AUTHORS)
        ),
        lambda value: value <= 0.6,
    ),
    Goal(
        'host waits in the profile: none',
        lambda parts: find(parts, 'runner', 'host waits'),
        lambda value: value == 0,
    ),
    Goal(
        'images a second of the loader, of the step, at least 1',
        lambda parts: (
            find(parts, 'pipeline', 'img/s')
            / find(parts, 'step', 'img/s', **OURS)
        ),
        lambda value: value >= 1,
    ),
)


def write_report(figures: Figures, command: str) -> str:
    """All tables, and what is missing from them."""
    parts = figures.parts()
    lines = [f'Printed by `{command}`.', '']
    if '--tiny' in command:
        lines += ['This is a rehearsal: its figures mean nothing.', '']
    lines += _table(
        {'goal': goal.text, **_result(goal, parts)} for goal in GOALS
    )
    tables: dict[str, list[dict]] = {}
    notes, failures = [], []
    for name in PARTS:
        for record in parts.get(name, []):
            if 'table' in record:
                rows = tables.setdefault(record['table'], [])
                rows.append(record['values'])
            elif 'note' in record:
                notes.append(record['note'])
            elif 'error' in record:
                failures.append(f'{record["what"]}: {record["error"]}')
    for title, rows in tables.items():
        lines += ['', f'### {title}', '', *_table(rows)]
    for title, items in (('Notes', notes), ('Failures', failures)):
        if items:
            lines += ['', f'### {title}', '', *(f'- {x}' for x in items)]
    return '\n'.join(lines) + '\n'


def _result(goal: Goal, parts: Parts) -> dict[str, str]:
    try:
        value = goal.value(parts)
    except (LookupError, TypeError):
        return {'measured': NOT_MEASURED, 'met': '-'}
    met = 'yes' if goal.met(value) else 'no'
    return {'measured': number(value), 'met': met}


def _table(rows: Iterable[dict[str, object]]) -> Iterator[str]:
    rows = list(rows)
    # Of all rows: one that ran out of memory has fewer.
    columns = list(dict.fromkeys(name for row in rows for name in row))
    yield '| ' + ' | '.join(columns) + ' |'
    yield '|' + '---|' * len(columns)
    for row in rows:
        cells = (number(row.get(name)) for name in columns)
        yield '| ' + ' | '.join(cells) + ' |'


def number(value: object) -> str:
    """A figure with three digits or more, or whatever else is in a cell."""
    if value is None:
        return '-'
    if not isinstance(value, float):
        return str(value)
    if value == 0 or abs(value) >= 100:
        return f'{value:.0f}'
    if abs(value) >= 10:
        return f'{value:.1f}'
    return f'{value:.2f}' if abs(value) >= 0.1 else f'{value:.2g}'
