# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checkpoint files that are damaged.

The newest of three checkpoints of a run is damaged. Whoever reads it must get
what was written or an error that names the file; whoever resumes must get it
or the one before.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from mmmoca.checkpoints import (
    CheckpointError,
    newest_checkpoint,
    read_checkpoint,
)

from ...images import write_images
from ...runs import NO_VALIDATION
from ..test_checkpoints import DAMAGES, build, damage
from .trials import Trial, same, state_of

NEWEST = 'iter_6.pth'


def trials(folder: Path, count: int) -> Iterator[Trial]:
    """Damage files at so many places."""
    write_images(folder)
    whole = folder / 'whole'
    keep = {'default_hooks.checkpoint.max_keep_ckpts': 3}
    build(folder, whole.name, **NO_VALIDATION, **keep).train()
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
    for spoil in (truncate, zero, flip):
        # The last of them meet the archive's list of contents.
        places = [chance.randrange(size) for _ in range(count)]
        for place in (*places, *(size - n for n in (1, 100, 10000)), 0, 40):
            yield f'{spoil.__name__}, at {place}', partial(spoil, place=place)
    for how in DAMAGES:
        yield f'other, {how}', partial(damage, how=how)
    yield 'other, a folder', lambda path: (path.unlink(), path.mkdir())
    yield 'other, gone', Path.unlink


def truncate(path: Path, place: int) -> None:
    path.write_bytes(path.read_bytes()[:place])


def zero(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    part = slice(place, min(place + 4096, len(content)))
    content[part] = bytes(part.stop - place)
    path.write_bytes(content)


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << place % 8
    path.write_bytes(content)


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
