# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""How all commands measure: time, memory, own processes; and their table."""

import itertools
import resource
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple, TypeVar

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import profile
from torch.utils.benchmark import timer

T = TypeVar('T')
# Picklable, such as a class or a partial of one; what it builds is called.
Build = Callable[[], Callable[[], object]]


class Cost(NamedTuple):
    """What a call takes.

    Attributes:
        seconds (float): Median of the calls after the first ones.
        mebibytes (float): Most memory besides what is there before.
        peak (float): Most memory in all, MiB.
        first (float): Seconds of the first call, which may compile.
    """

    seconds: float
    mebibytes: float
    peak: float
    first: float


def seconds_of(
    function: Callable[[], object], clock: Callable[[], float] = timer
) -> float:
    """Seconds that a call takes, the device's work included."""
    start = clock()
    function()
    return clock() - start


def take_turns(
    measures: dict[str, Callable[[], T]], turns: int
) -> dict[str, list[T]]:
    """Measure several things in turns."""
    results = {name: [] for name in measures}
    for _ in range(turns):
        for name, measure in measures.items():
            results[name].append(measure())
    return results


def median_seconds(
    forms: dict[str, Callable[[], object]],
    repeats: int,
    clock: Callable[[], float] = timer,
    warm_up: int = 1,
) -> dict[str, float]:
    """Median seconds of calls that take turns, after some not counted."""
    clocked = {k: partial(seconds_of, v, clock) for k, v in forms.items()}
    turns = take_turns(clocked, warm_up + repeats)
    return {k: statistics.median(v[warm_up:]) for k, v in turns.items()}


def peak_bytes(device: torch.device | str) -> int:
    """Most memory so far: allocated on a GPU, or of this process on a CPU."""
    if torch.device(device).type == 'cuda':
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == 'darwin' else 1024)


def own_mebibytes(
    function: Callable[[], object], device: torch.device | str
) -> float:
    """Most memory that tensors of a call take besides what is there before.

    In a training step activations, gradients and everything that is passing
    count; parameters, the optimiser's state and the codebook do not.
    """
    if torch.device(device).type == 'cuda':
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        function()
        return (peak_bytes(device) - before) / 2**20
    with profile(profile_memory=True) as recorded:
        function()
    changes = [
        (event.start_ns(), event.nbytes())
        for event in recorded.profiler.kineto_results.events()
        if event.name() == '[memory]'
    ]
    held = itertools.accumulate(size for _, size in sorted(changes))
    return max(held, default=0) / 2**20


def measure_apart(
    builds: dict[T, Build], device: str, repeats: int, rounds: int
) -> dict[T, Cost]:
    """Medians of what a call of what each builds takes.

    In every round each has a new process, one at a time: what the C library
    keeps of freed memory would pass from one to the next, and a GPU need not
    hold them all. There it is called once, then ``repeats`` times.
    """

    def measure(build: Build) -> Cost:
        with ProcessPoolExecutor(1, get_context('spawn')) as pool:
            return pool.submit(cost_of, build, device, repeats).result()

    measures = {name: partial(measure, builds[name]) for name in builds}
    turns = take_turns(measures, rounds)
    return {
        name: Cost(*map(statistics.median, zip(*results)))
        for name, results in turns.items()
    }


def cost_of(build: Build, device: str, repeats: int, warm_up: int = 1) -> Cost:
    """What a call of what is built takes, in this process."""
    run = build()
    first = seconds_of(run)
    seconds = median_seconds({'run': run}, repeats, warm_up=warm_up - 1)
    memory = own_mebibytes(run, device)
    return Cost(seconds['run'], memory, peak_bytes(device) / 2**20, first)


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
    """Print a table."""
    table = Table(title=title, caption=caption)
    for index, column in enumerate(columns):
        table.add_column(column, justify='right' if index else 'left')
    for row in rows:
        table.add_row(*row)
    # Wide enough for all of them in a pipe, too.
    console = Console()
    console.width = max(console.width, 100)
    console.print(table)


def compare_apart(title: str, builds: dict[str, Build], *options) -> None:
    """Measure the first apart from the others and print it against them."""
    measured = measure_apart(builds, *options)
    ours = next(iter(measured.values()))
    print_table(
        title,
        ('', 's', 'ours / it', 'MiB', 'ours / it'),
        (
            (
                *(name, f'{cost.seconds:.3f}'),
                f'{ours.seconds / cost.seconds:.2f}x',
                f'{cost.mebibytes:.0f}',
                f'{ours.mebibytes / cost.mebibytes:.2f}x',
            )
            for name, cost in measured.items()
        ),
        'Medians. MiB: what the tensors of a run take besides those that are '
        'there before.',
    )
