# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checkpoint files that are damaged.

The newest of three checkpoints of a run is damaged. Whoever reads it must get
what was written or an error that names the file; whoever resumes must get it
or the one before.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from mmmoca.checkpoints import (
    CheckpointError,
    newest_checkpoint,
    read_checkpoint,
)

from ...images import write_images
from ...runs import NO_VALIDATION, demo_runner
from ..test_checkpoints import damage
from .trials import Trial, same, state_of

NEWEST = 'iter_6.pth'


def trials(folder: Path, count: int) -> Iterator[Trial]:
    """Damage files at so many places."""
    write_images(folder)
    whole = folder / 'whole'
    settings = NO_VALIDATION | {
        'train_cfg.max_iters': 6,
        'default_hooks.checkpoint.interval': 2,
        'default_hooks.checkpoint.max_keep_ckpts': 3,
    }
    demo_runner(folder, whole.name, **settings).train()
    states = {path.name: state_of(path) for path in whole.glob('*.pth')}
    for number, (name, spoil) in enumerate(damages(whole / NEWEST, count)):
        work_dir = folder / f'damaged_{number}'
        shutil.copytree(whole, work_dir)
        spoil(work_dir / NEWEST)
        problem = judge(work_dir, states)
        yield Trial(f'checkpoint: {name.partition(",")[0]}', name, problem)
        shutil.rmtree(work_dir)


def damages(
    path: Path, count: int
) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """What may have happened to a file."""
    size = path.stat().st_size
    chance = random.Random(random.random())  # runs seed the global one

    def zero(path: Path, place: int) -> None:
        overwrite(path, place, bytes(min(4096, size - place)))

    def flip(path: Path, place: int) -> None:
        byte = path.read_bytes()[place]
        overwrite(path, place, bytes([byte ^ 1 << chance.randrange(8)]))

    def overwrite(path: Path, place: int, content: bytes) -> None:
        with path.open('r+b') as file:
            file.seek(place)
            file.write(content)

    for name, spoil in (
        ('truncated', os.truncate),
        ('4 KB zeroed', zero),
        ('a bit flipped', flip),
    ):
        # The last of them meet the archive's list of contents.
        places = [chance.randrange(size) for _ in range(count)]
        for place in (*places, *(size - n for n in (1, 100, 10000)), 0, 40):
            yield (
                f'{name}, at {place}',
                lambda path, spoil=spoil, place=place: spoil(path, place),
            )
    for how in (
        *('empty', 'random', 'zeroed', 'truncated'),
        'an archive of something else',
    ):
        yield f'other, {how}', lambda path, how=how: damage(path, how)
    yield 'other, a folder', lambda path: (path.unlink(), path.mkdir())
    yield 'other, gone', lambda path: path.unlink()
    yield (
        'other, a link to nothing',
        lambda path: (path.unlink(), path.symlink_to('nowhere')),
    )


def judge(work_dir: Path, states: dict[str, dict]) -> str:
    """What is wrong with how a damaged checkpoint is met, '' if nothing."""
    path = work_dir / NEWEST
    try:
        found = read_checkpoint(path)
    except (CheckpointError, FileNotFoundError) as error:
        if str(path) not in str(error):
            return f'the error names no file: {error}'
    except Exception as error:
        return f'{type(error).__name__}: {error}'
    else:
        state = {key: found.get(key) for key in states[path.name]}
        if not same(state, states[path.name]):
            return 'it gives what was not written'
    newest, problems = newest_checkpoint(work_dir, 'iter_{}.pth')
    try:
        taken = newest and same(state_of(newest), states[newest.name])
    except CheckpointError:
        taken = None
    if not taken:
        return f'{newest} is taken'
    if newest != path and path.is_file() and path.name not in str(problems):
        return f'{newest.name} is taken, and not said why'
    return ''
