# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Measure time and memory for the programs, in new processes if needed."""

import itertools
import json
import math
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from torch.profiler import profile

T = TypeVar('T')
# Builds the callable to measure. The builder must be picklable, such as a
# class or a partial of a class.
Build = Callable[[], Callable[[], object]]


class Cost(NamedTuple):
    """Time and memory of a call.

    Attributes:
        seconds (float): Median of the calls after the first one.
        mebibytes (float): Peak memory beyond what was allocated before
            the call.
    """

    seconds: float
    mebibytes: float


def timer() -> float:
    """Return the current time in seconds, after any GPU has done its work.

    PyTorch's own timer is not used, since it looks for CUDA compilers and
    prints what it does not find.
    """
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def median_seconds(
    forms: dict[str, Callable[[], object]],
    repeats: int,
    clock: Callable[[], float] = timer,
) -> dict[str, float]:
    """Call several functions in turn; return the median seconds of each.

    The first call of each does not count. The default clock waits for the GPU.
    """

    def seconds_of(form: Callable[[], object]) -> float:
        start = clock()
        form()
        return clock() - start

    _, *turns = [
        [*map(seconds_of, forms.values())] for _ in range(1 + repeats)
    ]
    return dict(zip(forms, map(statistics.median, zip(*turns))))


def own_mebibytes(
    function: Callable[[], object], device: torch.device | str
) -> float:
    """Return the peak memory of the tensors that a call allocates.

    In a training step, activations, gradients and all temporary tensors count;
    parameters, the optimiser's state and the codebook do not.
    """
    if torch.device(device).type == 'cuda':
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        function()
        return (torch.cuda.max_memory_allocated(device) - before) / 2**20
    with profile(profile_memory=True, acc_events=True) as recorded:
        function()
    changes = [
        (event.start_ns(), event.nbytes())
        for event in recorded.profiler.kineto_results.events()
        if event.name() == '[memory]'
    ]
    held = itertools.accumulate(size for _, size in sorted(changes))
    return max(held, default=0) / 2**20


def apart(function: Callable[..., T], *arguments: object) -> T:
    """Call a function in a new process.

    If calls shared a process, the memory that the C library keeps would pass
    from one call to the next, and a GPU would have to hold what all calls
    build.
    """
    # Without these settings PyTorch's profiler prints messages, for example
    # that there is no GPU.
    os.environ |= dict(TORCH_CPP_LOG_LEVEL='ERROR', KINETO_LOG_LEVEL='5')
    with ProcessPoolExecutor(1, get_context('spawn')) as pool:
        return pool.submit(function, *arguments).result()


def measure_apart(
    builds: dict[str, Build], device: str, repeats: int
) -> dict[str, Cost]:
    """Build each form, call it, and return the cost of a call.

    Each form has a new process that measures its memory. On a GPU this process
    also times ``repeats`` calls after a first one. On a CPU one more process
    times all forms in turns, since the speed of a shared machine doubles or
    halves within minutes.
    """
    in_turns = device == 'cpu'
    timed = 0 if in_turns else repeats
    costs = {
        name: apart(cost_of, build, device, timed)
        for name, build in builds.items()
    }
    if in_turns:
        for name, seconds in apart(seconds_in_turns, builds, repeats).items():
            costs[name] = costs[name]._replace(seconds=seconds)
    return costs


def seconds_in_turns(builds: dict[str, Build], repeats: int) -> dict:
    """Build all forms and time their calls, in this process."""
    forms = {name: build() for name, build in builds.items()}
    return median_seconds(forms, repeats)


def cost_of(build: Build, device: str, repeats: int) -> Cost:
    """Build a form and measure a call of it, in this process.

    The time is NaN if ``repeats`` is 0.
    """
    run = build()
    seconds = median_seconds({'run': run}, repeats).get('run', math.nan)
    return Cost(seconds, own_mebibytes(run, device))


def name_of(device: str) -> str:
    """Return the device's name for a title."""
    if device.startswith('cuda'):
        return torch.cuda.get_device_name(device)
    return f'{device} with {torch.get_num_threads()} threads'


def report(figures: list[dict], file: Path | None = None) -> None:
    """Print a table of figures, and write them to a file if one is given.

    Args:
        figures (list[dict]): For each row, column -> text or number.
        file (Path, optional): The JSON file to write.
    """
    # Imported here because it loads all of OpenMMLab, which some programs do
    # without while they measure.
    from mmmoca.evaluation.report import render_table

    rows = [
        [f'{v:.4g}' if isinstance(v, float) else str(v) for v in row.values()]
        for row in figures
    ]
    print(render_table([*figures[0]], rows))
    if file is not None:
        file.write_text(json.dumps(figures))
