# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The one clock, the one look at memory and the one table of all commands."""

import resource
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

import torch
from rich.console import Console
from rich.table import Table
from torch.utils.benchmark import timer

T = TypeVar('T')


def seconds_of(
    function: Callable[[], object], clock: Callable[[], float] = timer
) -> float:
    """Seconds that a call takes, the device's work included."""
    start = clock()
    function()
    return clock() - start


def take_turns(
    measures: dict[str, Callable[[], T]], turns: int, warm_up: int = 1
) -> dict[str, list[T]]:
    """Measure several things in turns, after some that do not count."""
    results = {name: [] for name in measures}
    for _ in range(warm_up + turns):
        for name, measure in measures.items():
            results[name].append(measure())
    return {name: values[warm_up:] for name, values in results.items()}


def median_seconds(
    forms: dict[str, Callable[[], object]],
    repeats: int,
    clock: Callable[[], float] = timer,
) -> dict[str, float]:
    """Median seconds of calls that take turns, the first not counted."""
    clocked = {k: partial(seconds_of, v, clock) for k, v in forms.items()}
    turns = take_turns(clocked, repeats)
    return {name: statistics.median(turns[name]) for name in turns}


def peak_bytes(device: torch.device | str) -> int:
    """Most memory so far: allocated on a GPU, or of this process on a CPU."""
    device = torch.device(device)
    if device.type == 'cuda':
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == 'darwin' else 1024)


def name_of(device: torch.device | str) -> str:
    """The device's name for a title."""
    if torch.device(device).type == 'cuda':
        return torch.cuda.get_device_name(device)
    return f'{device} with {torch.get_num_threads()} threads'


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str | None = None,
) -> None:
    """Print a table; a row without cells is a line."""
    table = Table(title=title, caption=caption)
    for index, column in enumerate(columns):
        table.add_column(column, justify='right' if index else 'left')
    for row in rows:
        if row:
            table.add_row(*row)
        else:
            table.add_section()
    # Wide enough for all of them in a pipe, too.
    console = Console()
    console.width = max(console.width, 100)
    console.print(table)
