# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Runs of the small network with other images and settings, and their k-NN.

For programs that are started as modules: ``python -m projects.NAME.PROGRAM``.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from pathlib import Path
from statistics import mean, stdev
from typing import TypeVar

from mmmoca.progress import progress_bar

Run = TypeVar('Run', bound=Hashable)
Result = TypeVar('Result')

ROOT = Path(__file__).resolve().parents[1]
ACCURACY = 'knn/top1_k20'


def check_counts(
    parser: argparse.ArgumentParser, args: argparse.Namespace, *options: str
) -> None:
    """Refuse numbers below 1; one that was not given may be None."""
    for option in options:
        value = getattr(args, option)
        if value is not None and value < 1:
            parser.error(f'--{option} must be 1 or more')


def tool(
    name: str,
    *arguments: object,
    log: Path | None = None,
    threads: int | None = None,
) -> None:
    """Run a program of the repository.

    Args:
        name (str): Its path.
        *arguments (object): Its arguments.
        log (Path, optional): Takes what it prints.
        threads (int, optional): By default as many as there are cores.

    Raises:
        RuntimeError: If it fails.
    """
    command = [*map(str, (sys.executable, ROOT / name, *arguments))]
    env = dict(os.environ, OMP_WAIT_POLICY='passive')
    env['PYTHONPATH'] = os.pathsep.join(
        [str(ROOT), *filter(None, [env.get('PYTHONPATH')])]
    )
    if threads is not None:
        env['OMP_NUM_THREADS'] = str(threads)
    with open(log, 'a') if log else nullcontext() as out:
        done = subprocess.run(
            command, cwd=ROOT, env=env, stdout=out, stderr=out
        )
    if done.returncode:
        why = f'; {log} says why' if log else ''
        raise RuntimeError(f'{" ".join(command)} failed{why}')


def train(
    work: Path,
    config: str | Path,
    steps: int,
    options: dict,
    *arguments: object,
    **running: object,
) -> Path:
    """Train, or continue a stopped run. A finished run is left alone.

    Args:
        work (Path): The work dir.
        config (str | Path): The config, or its path in configs/.
        steps (int): Optimiser steps of it.
        options (dict): What changes in the config.
        *arguments (object): Further ones of tools/train.py.
        **running (object): See :func:`tool`.

    Returns:
        Path: Its last checkpoint.
    """
    checkpoint = work / f'iter_{steps}.pth'
    if not checkpoint.is_file():
        if (work / 'last_checkpoint').is_file():
            arguments += ('--resume',)
        options = {'train_cfg.max_iters': steps, **options}
        tool(
            'tools/train.py',
            config,
            *('--work-dir', work, *arguments, '--cfg-options'),
            *(f'{key}={value}' for key, value in options.items()),
            **running,
        )
    return checkpoint


def side_by_side(
    train: Callable[[Run], Result],
    runs: Iterable[Run],
    jobs: int,
    name: Callable[[Run], str] = str,
) -> dict[Run, Result]:
    """Train several, some at a time, and show how many are done.

    Args:
        train (Callable): Trains one, in another process.
        runs (Iterable): What to train.
        jobs (int): How many at a time.
        name (Callable): What to call one of them.

    Returns:
        dict: What each gave, in the order of ``runs``.

    Raises:
        Exception: The first one of a run. Those that have begun go on to
            their end, others are not begun.
    """
    runs = list(runs)
    with (
        ThreadPoolExecutor(jobs) as pool,
        progress_bar('runs', len(runs), seconds=0) as update,
    ):
        begun = {pool.submit(train, run): run for run in runs}
        try:
            for done, finished in enumerate(as_completed(begun), 1):
                finished.result()
                update(done, name(begun[finished]))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return {run: finished.result() for finished, run in begun.items()}


def accuracies(work: Path) -> list[float]:
    """What a run measured by k-NN, in per cent, in its order."""
    log = max(work.glob('*/vis_data/scalars.json'))
    lines = map(json.loads, log.read_text().splitlines())
    return [line[ACCURACY] for line in lines if ACCURACY in line]


def mean_and_deviation(values: Sequence[float], digits: int = 1) -> str:
    """A mean, and the standard deviation if there are several."""
    found = [mean(values)]
    if len(values) > 1:
        found.append(stdev(values))
    return ' ± '.join(f'{value:.{digits}f}' for value in found)
