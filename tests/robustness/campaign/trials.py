# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A trial of the campaign, and the runs that trials start."""

import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from mmmoca.checkpoints import read_checkpoint

ROOT = Path(__file__).resolve().parents[3]
DEMO_CONFIG = ROOT / 'configs' / 'demo' / 'moca_vit-tiny_textures.py'
NO_VALIDATION = {
    f'val_{part}': None for part in ('cfg', 'dataloader', 'evaluator')
}


class Outcome(NamedTuple):
    """What came of one trial.

    Attributes:
        kind (str): The row of the table that counts it.
        name (str): What was tried.
        good (bool): Whether nothing was lost: the run went on as it should,
            or was refused by an error that says what to do.
        said (str): How it ended, in one line.
    """

    kind: str
    name: str
    good: bool
    said: str = ''


def train(
    work_dir: Path,
    options: Mapping[str, object],
    *arguments: str,
    processes: int = 1,
    config: Path = DEMO_CONFIG,
) -> subprocess.Popen:
    """Start ``tools/train.py`` in a session of its own.

    Args:
        work_dir (Path): Where it writes; its output goes to ``<name>.log``
            beside it.
        options (Mapping): Its ``--cfg-options``.
        *arguments (str): Further ones.
        processes (int): From 2 on ``tools/dist_train.sh`` starts them.
        config (Path): The config. Defaults to the quick start's.

    Returns:
        subprocess.Popen: The run.
    """
    command = [sys.executable, ROOT / 'tools' / 'train.py', config]
    if processes > 1:
        command = [ROOT / 'tools' / 'dist_train.sh', config, processes]
    command += ['--work-dir', work_dir, *arguments, '--cfg-options']
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


def log_of(work_dir: Path) -> Path:
    """Where :func:`train` keeps what a run prints."""
    return work_dir.with_name(f'{work_dir.name}.log')


def workers(run: subprocess.Popen) -> list[int]:
    """The training processes of a run that ``dist_train.sh`` has started."""
    # The shell's child is torchrun, whose children they are.
    return [pid for child in children(run.pid) for pid in children(child)]


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = subprocess.run(
        ['pgrep', '-P', str(pid)], capture_output=True, text=True
    )
    return [int(child) for child in found.stdout.split()]


def state_of(checkpoint: Path) -> dict:
    """What a run's later steps depend on; not its log."""
    saved = read_checkpoint(checkpoint)
    return {key: saved[key] for key in ('state_dict', 'optimizer')}


def same(first: object, second: object) -> bool:
    """Whether two nested states are equal bit for bit."""
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(
            same(value, second[key]) for key, value in first.items()
        )
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second
