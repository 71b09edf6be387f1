# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Stop runs of the demo at random moments; see what is lost (Linux only).

Each run is stopped up to three times, by random signals at random times, and
started again with ``--resume``. At the end, the weights and the optimiser's
state must equal those of a run that was never stopped, bit for bit. A
checkpoint is written in every second step, so that many signals arrive while
one is being written.

python -m projects.robustness.campaign --trials 5
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch

from mmmoca.checkpoints import read_checkpoint
from tests.helpers.images import DEMO_CONFIG, write_images
from tests.helpers.runs import NO_VALIDATION
from tests.helpers.tools import ROOT

SIGNALS = ('SIGKILL', 'SIGKILL', 'SIGTERM', 'SIGINT', 'SIGUSR1')
ITERATIONS = 30


def trials(folder: Path, count: int) -> Iterator[tuple[str, str, str]]:
    """Stop runs of one and of two processes, ``count`` times each.

    Args:
        folder (Path): Folder for images and runs.
        count (int): Number of stops for each number of processes.

    Yields:
        tuple[str, str, str]: The kind of the trial, the signal, and what was
        lost. The last is empty if the run continued as it should.
    """
    write_images(folder, train=8, val=1)
    for processes in (1, 2):
        begin = time.time()
        whole = folder / f'whole_{processes}'
        if start(whole, processes).wait() != 0:
            raise RuntimeError(log_of(whole).read_text()[-3000:])
        seconds = time.time() - begin
        expected = state_of(whole)
        stops = number = 0
        while stops < count:
            work_dir = folder / f'run_{processes}_{number}'
            met, problem = stop_and_resume(
                work_dir, processes, seconds, min(3, count - stops)
            )
            if not problem and differing(state_of(work_dir), expected):
                problem = 'differs at the end'
            for name in met:
                yield f'stopped, {processes} process(es)', name, problem
            stops += len(met)
            number += 1


def state_of(work_dir: Path) -> dict[str, torch.Tensor]:
    """Return the weights and the optimiser's state at the end of a run."""
    saved = read_checkpoint(work_dir / f'iter_{ITERATIONS}.pth')
    moments = saved['optimizer']['state'].items()
    return saved['state_dict'] | {
        f'{parameter}.{name}': value
        for parameter, values in moments
        for name, value in values.items()
    }


def differing(first: dict, second: dict) -> set[str]:
    """Return the names whose values differ in any bit between two states."""
    names = first.keys() & second.keys()
    unequal = {n for n in names if not torch.equal(first[n], second[n])}
    return unequal | (first.keys() ^ second.keys())


def log_of(work_dir: Path) -> Path:
    """Return the log of a run, which is next to its work dir."""
    return work_dir.with_name(f'{work_dir.name}.log')


def start(work_dir: Path, processes: int) -> subprocess.Popen:
    """Start, or resume, a run with a number of processes."""
    options = NO_VALIDATION | {
        'train_cfg.max_iters': ITERATIONS,
        'default_hooks.checkpoint.interval': 2,
        'default_hooks.checkpoint.max_keep_ckpts': 2,
        'train_dataloader.num_workers': 1,
        'train_dataloader.dataset.data_root': work_dir.parent,
        'train_dataloader.batch_size': 16 // processes,
    }
    command = [sys.executable, ROOT / 'tools' / 'train.py', DEMO_CONFIG]
    if processes > 1:
        command = [ROOT / 'tools' / 'dist_train.sh', DEMO_CONFIG, processes]
    command += ['--work-dir', work_dir, '--resume', '--cfg-options']
    command += [f'{key}={value}' for key, value in options.items()]
    environment = os.environ | dict(
        PATH=f'{Path(sys.executable).parent}:{os.environ["PATH"]}',
        PYTHONPATH=str(ROOT),
        PORT=str(random.randrange(20000, 30000)),
        OMP_NUM_THREADS='1',
    )
    with log_of(work_dir).open('a') as log:
        return subprocess.Popen(
            list(map(str, command)),
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def stop_and_resume(
    work_dir: Path, processes: int, seconds: float, stops: int
) -> tuple[list[str], str]:
    """Stop and resume a run; return the signals it got, and any fault."""
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
            return met, ''
        if not stopped:
            # A run that fails before its first signal counts as a trial, too.
            end = log_of(work_dir).read_text(errors='replace')[-300:]
            return met or ['none'], f'ended by itself: {end!r}'


def send(run: subprocess.Popen, name: str, processes: int) -> bool:
    """Signal the run or one of its processes; return whether it still ran."""
    targets = [run.pid]
    if processes > 1:
        targets = children(run.pid)  # torchrun's children train
    if run.poll() is not None or not targets:
        return False
    os.kill(random.choice(targets), getattr(signal, name))
    return True


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found = Path(f'/proc/{pid}/task/{pid}/children')
    return list(map(int, found.read_text().split() if found.exists() else ()))


def main() -> int:
    """Run the trials and print how each ended.

    Returns:
        int: 1 if anything was lost, else 0.
    """
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument(
        '--trials',
        type=int,
        default=25,
        help='number of stops for each number of processes',
    )
    parser.add_argument('--seed', type=int, default=0)
    args = parser.parse_args()
    random.seed(args.seed)
    tried, lost = Counter(), Counter()
    with tempfile.TemporaryDirectory() as folder:
        for kind, name, problem in trials(Path(folder), args.trials):
            tried[kind] += 1
            lost[kind] += bool(problem)
            mark = 'LOST' if problem else 'ok  '
            print(mark, kind, name, problem, sep=' | ', flush=True)
    for kind, count in tried.items():
        print(f'{kind}: {count} tried, {lost[kind]} lost')
    return int(lost.total() > 0)


if __name__ == '__main__':
    sys.exit(main())
