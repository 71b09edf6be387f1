# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Runs that are stopped at random moments, and what is lost by it.

Each run is stopped up to three times, by signals and at times that are drawn,
and started again with ``--resume``. In the end weights and optimiser must be
those of a run that nobody stopped, bit for bit. A checkpoint is written in
every second step, so that many signals meet one that is being written.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from ...images import write_images
from .trials import (
    NO_VALIDATION,
    Outcome,
    log_of,
    same,
    state_of,
    train,
    workers,
)

SIGNALS = ('SIGKILL', 'SIGKILL', 'SIGTERM', 'SIGINT', 'SIGUSR1')
ITERATIONS = 30
STOPS = 25


def trials(folder: Path) -> Iterator[Outcome]:
    """Stop runs of one and of two processes, 25 times each."""
    write_images(folder, train=8, val=1)
    for processes in (1, 2):
        begin = time.time()
        whole = folder / f'whole_{processes}'
        if start(whole, processes).wait() != 0:
            raise RuntimeError(log_of(whole).read_text()[-3000:])
        seconds = time.time() - begin
        expected = state_of(whole / f'iter_{ITERATIONS}.pth')
        kind = f'stopped, {processes} process(es)'
        stops = number = 0
        while stops < STOPS:
            work_dir = folder / f'run_{processes}_{number}'
            met = stop_and_resume(work_dir, processes, seconds, 3)
            end = state_of(work_dir / f'iter_{ITERATIONS}.pth')
            good = same(end, expected)
            for name in met:
                yield Outcome(kind, name, good, '' if good else 'differs')
            stops += len(met)
            number += 1


def start(work_dir: Path, processes: int) -> subprocess.Popen:
    """Start, or resume, a run on so many processes."""
    options = NO_VALIDATION | {
        'train_cfg.max_iters': ITERATIONS,
        'default_hooks.checkpoint.interval': 2,
        'default_hooks.checkpoint.max_keep_ckpts': 2,
        'train_dataloader.num_workers': 1,
        'train_dataloader.dataset.data_root': work_dir.parent,
        'train_dataloader.batch_size': 8 // processes,
    }
    return train(work_dir, options, '--resume', processes=processes)


def stop_and_resume(
    work_dir: Path, processes: int, seconds: float, stops: int
) -> list[str]:
    """Stop a run so many times; the signals that met it."""
    met = []
    while True:
        run = start(work_dir, processes)
        stopped = False
        if len(met) < stops:
            time.sleep(random.uniform(0.4, 1.0) * seconds)
            name = random.choice(SIGNALS)
            stopped = send(run, name, processes)
        if stopped:
            met.append(name)
        if run.wait() == 0:
            return met
        if not stopped:
            raise RuntimeError(log_of(work_dir).read_text()[-3000:])


def send(run: subprocess.Popen, name: str, processes: int) -> bool:
    """Send a signal to the run, or to one of its processes."""
    targets = [run.pid] if processes == 1 else workers(run)
    if run.poll() is not None or not targets:
        return False
    os.kill(random.choice(targets), getattr(signal, name))
    return True
