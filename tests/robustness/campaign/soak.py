# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Two hours of training on two processes: what grows, and what slows down.

Epochs are short, so that loaders, samplers and schedules turn over thousands
of times; k-NN, checkpoints and logs come every few hundred steps. Each
process is asked for its memory, open files, threads and seconds of CPU a step
every 10 seconds; a line through the last three quarters says what two hours
more would change. Seconds of CPU, not of the clock: they say the same on a
machine that does other things beside.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...images import write_images
from .trials import Outcome, log_of, train, workers

MINUTES = 120
KIND = 'two hours on 2 processes'
TICKS = os.sysconf('SC_CLK_TCK')


class Sample(NamedTuple):
    """A process at one moment; memory in MiB."""

    minute: float
    step: int
    memory: float
    files: int
    threads: int
    cpu: float


def trials(folder: Path) -> Iterator[Outcome]:
    """Train for two hours; one trial for each process and quantity."""
    write_images(folder, train=16, val=5)
    run = start(folder / 'run')
    series = watch(run, folder / 'run', MINUTES)
    os.kill(workers(run)[0], signal.SIGTERM)
    code = run.wait()
    saved = (folder / 'run' / 'interrupted.pth').is_file()
    yield Outcome(KIND, 'stopped', saved, f'status {code}')
    for rank, samples in enumerate(series):
        for name, change, limit, unit in growth(samples):
            yield Outcome(
                KIND,
                f'process {rank}, {name}',
                bool(change < limit),
                f'{change:+.3g} {unit} in {MINUTES} minutes',
            )


def start(work_dir: Path) -> subprocess.Popen:
    """Start a run that would not end, with all of its parts at work."""
    data = work_dir.parent
    options = {
        'train_cfg.max_iters': 10**6,
        'train_cfg.val_interval': 200,
        'default_hooks.checkpoint.interval': 200,
        'train_dataloader.batch_size': 8,
        **{
            f'{part}.data_root': data
            for part in (
                'train_dataloader.dataset',
                'val_dataloader.dataset',
                'val_cfg.bank_dataloader.dataset',
            )
        },
    }
    return train(work_dir, options, processes=2)


def watch(
    run: subprocess.Popen, work_dir: Path, minutes: float
) -> list[list[Sample]]:
    """Samples of each process over so many minutes."""
    begin = time.time()
    while not list(work_dir.glob('*/vis_data/scalars.json')):
        time.sleep(1)
        if run.poll() is not None:
            raise RuntimeError(log_of(work_dir).read_text()[-3000:])
    (scalars,) = work_dir.glob('*/vis_data/scalars.json')
    pids = workers(run)
    series = [[] for _ in pids]
    while (minute := (time.time() - begin) / 60) < minutes:
        step = last_step(scalars)
        for pid, samples in zip(pids, series, strict=True):
            samples.append(sample(pid, minute, step))
        if run.poll() is not None:
            raise RuntimeError(log_of(work_dir).read_text()[-3000:])
        time.sleep(10)
    return series


def last_step(scalars: Path) -> int:
    """The last step that a run has logged."""
    lines = scalars.read_text().splitlines()
    steps = [json.loads(line)['step'] for line in lines[-3:]]
    return max(steps, default=0)


def sample(pid: int, minute: float, step: int) -> Sample:
    """Ask the system for what a process holds."""
    folder = Path('/proc') / str(pid)
    status = dict(
        line.split(':', 1)
        for line in (folder / 'status').read_text().splitlines()
    )
    # After the name, which may hold spaces; see proc(5).
    fields = (folder / 'stat').read_text().rpartition(')')[2].split()
    return Sample(
        minute,
        step,
        int(status['VmRSS'].split()[0]) / 1024,
        len(os.listdir(folder / 'fd')),
        int(status['Threads']),
        (int(fields[11]) + int(fields[12])) / TICKS,
    )


def growth(samples: list[Sample]) -> Iterator[tuple[str, float, float, str]]:
    """What a quantity gains over the soak, its limit and its unit."""
    late = np.array(samples[len(samples) // 4 :], dtype=float)
    minute, step, memory, files, threads, cpu = late.T
    for name, values, limit, unit in (
        ('memory', memory, 64, 'MiB'),
        ('open files', files, 2, 'files'),
        ('threads', threads, 2, 'threads'),
    ):
        yield name, np.polyfit(minute, values, 1)[0] * MINUTES, limit, unit
    # Ten parts of as many steps: one step is shorter than the clock of a
    # process, and a part with few of them would be all noise.
    ends = np.searchsorted(step, np.linspace(step[0], step[-1], 11))
    a_step = np.diff(cpu[ends]) / np.diff(step[ends])
    change = 100 * np.polyfit(np.arange(10), a_step, 1)[0] * 10
    yield 'CPU time of a step', change / a_step.mean(), 10, '%'
