# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Time, memory, fresh processes and tables, for all commands."""

import itertools
import resource
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
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
        mebibytes (float): Most memory on top of what is there before.
    """

    seconds: float
    mebibytes: float


def seconds_of(
    function: Callable[[], object], clock: Callable[[], float] = timer
) -> float:
    """Seconds that a call takes, the device's work included."""
    start = clock()
    function()
    return clock() - start


def median_seconds(
    forms: dict[str, Callable[[], object]],
    repeats: int,
    clock: Callable[[], float] = timer,
    warm_up: int = 1,
) -> dict[str, float]:
    """Median seconds of calls that take turns, after some not counted."""
    turns = [
        [seconds_of(form, clock) for form in forms.values()]
        for _ in range(warm_up + repeats)
    ]
    return dict(zip(forms, map(statistics.median, zip(*turns[warm_up:]))))


def peak_bytes(device: torch.device | str) -> int:
    """Most memory so far: allocated on a GPU, or of this process on a CPU."""
    if torch.device(device).type == 'cuda':
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == 'darwin' else 1024)


def own_mebibytes(
    function: Callable[[], object], device: torch.device | str
) -> float:
    """Most memory that the tensors of a call take on top of those before it.

    In a training step activations, gradients and all temporary tensors count;
    parameters, the optimiser's state and the codebook do not.
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
    """Build each form, call it, and give the medians of what a call takes.

    In every round each form has a new process, one at a time: otherwise the
    memory that the C library keeps would pass from one form to the next, and
    a GPU would have to hold them all. A form is called once, then ``repeats``
    times.
    """
    costs = {name: [] for name in builds}
    for name, build in [*builds.items()] * rounds:
        with ProcessPoolExecutor(1, get_context('spawn')) as pool:
            cost = pool.submit(cost_of, build, device, repeats).result()
        costs[name].append(cost)
    return {
        name: Cost(*map(statistics.median, zip(*found)))
        for name, found in costs.items()
    }


def cost_of(build: Build, device: str, repeats: int) -> Cost:
    """Build a form and measure a call of it, in this process."""
    run = build()
    seconds = median_seconds({'run': run}, repeats)
    return Cost(seconds['run'], own_mebibytes(run, device))


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
        'Medians. MiB: what the tensors of a run take on top of those before '
        'it.',
    )
