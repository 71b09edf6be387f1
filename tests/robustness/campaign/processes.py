# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Processes of a run that die or stall: the others must not wait for ever.

One of two training processes is killed or stopped, or the worker of a
loader is; the run must end by itself, soon, with a status that is not 0 and
a message that names who it was, and go on by ``--resume`` as if it had not
been.
"""

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from ...images import write_images
from .trials import (
    NO_VALIDATION,
    Outcome,
    children,
    log_of,
    same,
    state_of,
    train,
    workers,
)

ITERATIONS = 24
TIMEOUT = 20
SECONDS = 120


def trials(folder: Path) -> Iterator[Outcome]:
    """Each trial twice, at moments that are drawn."""
    write_images(folder, train=8, val=1)
    expected = {}
    for processes in (1, 2):
        whole = folder / f'whole_{processes}'
        if start(whole, processes).wait() != 0:
            raise RuntimeError(log_of(whole).read_text()[-3000:])
        expected[processes] = state_of(whole / f'iter_{ITERATIONS}.pth')
    for number in range(2):
        for rank in (0, 1):
            for kind, name in (('dies', 'SIGKILL'), ('stalls', 'SIGSTOP')):
                work_dir = folder / f'{kind}_{rank}_{number}'
                run = start(work_dir, 2)
                problem = strike(run, work_dir, name, rank)
                problem = problem or resume(work_dir, 2, expected[2])
                yield Outcome(
                    f'process of 2 {kind}',
                    f'rank {rank}',
                    not problem,
                    problem,
                )
        work_dir = folder / f'worker_{number}'
        run = start(work_dir, 1)
        problem = strike(run, work_dir, 'SIGKILL', None)
        problem = problem or resume(work_dir, 1, expected[1])
        yield Outcome('worker of a loader dies', '', not problem, problem)


def start(work_dir: Path, processes: int) -> subprocess.Popen:
    """Start, or resume, a run on so many processes."""
    options = NO_VALIDATION | {
        'train_cfg.max_iters': ITERATIONS,
        'default_hooks.logger.interval': 1,
        'default_hooks.checkpoint.interval': 5,
        'default_hooks.checkpoint.max_keep_ckpts': 2,
        'train_dataloader.num_workers': 1,
        'train_dataloader.dataset.data_root': work_dir.parent,
        'train_dataloader.batch_size': 8 // processes,
        'env_cfg.dist_cfg.timeout': TIMEOUT,
    }
    return train(work_dir, options, '--resume', processes=processes)


def strike(
    run: subprocess.Popen, work_dir: Path, name: str, rank: int | None
) -> str:
    """Send a signal to a rank, or to a worker; what is wrong in the end."""
    after = random.randrange(6, ITERATIONS // 2)
    while f'{after}/{ITERATIONS}]' not in read(work_dir):
        if run.poll() is not None:
            return f'ended by itself: {read(work_dir)[-300:]}'
        time.sleep(0.05)
    if rank is None:
        # The child that it has forked.
        target = children(run.pid)[-1]
        expected = r'worker \(pid(\(s\))? {pid}\)'
    else:
        target = rank_of(run)[rank]
        expected = {
            'SIGKILL': rf'rank      : {rank} \(local_rank: {rank}\)',
            'SIGSTOP': 'Timed out waiting',
        }[name]
    os.kill(target, getattr(signal, name))
    begin = time.time()
    try:
        code = run.wait(SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        return f'still waits after {SECONDS} s'
    if code == 0:
        return 'ends with status 0'
    limit = TIMEOUT + 60 if name == 'SIGSTOP' else 30
    if (seconds := time.time() - begin) > limit:
        return f'took {seconds:.0f} s to end'
    if not re.search(expected.format(pid=target), read(work_dir)):
        return f'nobody is named: {read(work_dir)[-300:]!r}'
    return ''


def resume(work_dir: Path, processes: int, expected: dict) -> str:
    """Go on, and compare with a run that nobody disturbed."""
    if start(work_dir, processes).wait() != 0:
        return f'not resumed: {read(work_dir)[-300:]!r}'
    end = state_of(work_dir / f'iter_{ITERATIONS}.pth')
    return '' if same(end, expected) else 'differs in the end'


def read(work_dir: Path) -> str:
    """What a run has printed."""
    log = log_of(work_dir)
    return log.read_text(errors='replace') if log.exists() else ''


def rank_of(run: subprocess.Popen) -> dict[int, int]:
    """Process ids of a run by rank."""
    found = {}
    for pid in workers(run):
        environment = Path(f'/proc/{pid}/environ').read_bytes().split(b'\0')
        values = dict(item.partition(b'=')[::2] for item in environment)
        found[int(values[b'RANK'])] = pid
    return found
