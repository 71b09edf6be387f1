# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checkpoint files that are damaged, and disks that take no more.

The newest of three checkpoints of a run is damaged in many ways, and so is
the file that points at it. Whoever reads it must get what was written or an
error that names the file; whoever resumes must get it or the one before, and
its end is that of the whole run. Runs whose work dir is full, or no folder,
must say which file could not be written, and leave no half of it.
"""

import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from mmengine.runner.checkpoint import CheckpointLoader

from mmmoca.checkpoints import (
    CheckpointError,
    newest_checkpoint,
    read_checkpoint,
)

from ...images import write_images
from ...runs import NO_VALIDATION, demo_runner
from ..test_checkpoints import damage
from .trials import Outcome, same, state_of

STEPS = 6
PLACES = 20


def trials(folder: Path) -> Iterator[Outcome]:
    """Damage files, files that point at them, and disks."""
    write_images(folder)
    runner(folder, 'whole').train()
    whole = folder / 'whole'
    states = {path.name: state_of(path) for path in whole.glob('*.pth')}
    for number, (name, spoil) in enumerate(damages(whole)):
        work_dir = folder / f'damaged_{number}'
        shutil.copytree(whole, work_dir)
        spoil(work_dir / f'iter_{STEPS}.pth')
        problem = judge(work_dir, states)
        # Each twentieth goes through a run.
        if not problem and number % PLACES == 0:
            problem = resume(folder, work_dir.name, states)
        row = f'checkpoint: {name.partition(",")[0]}'
        yield Outcome(row, name, not problem, problem)
        shutil.rmtree(work_dir)
    for number, (name, spoil) in enumerate(pointers()):
        work_dir = folder / f'pointer_{number}'
        shutil.copytree(whole, work_dir)
        spoil(work_dir / 'last_checkpoint')
        problem = resume(folder, work_dir.name, states)
        yield Outcome('last_checkpoint', name, not problem, problem)
    yield from disks(folder)


def runner(root: Path, name: str, **options: object) -> object:
    """A run with checkpoints of iterations 2, 4 and 6."""
    settings = NO_VALIDATION | {
        'train_cfg.max_iters': STEPS,
        'default_hooks.checkpoint.interval': 2,
        'default_hooks.checkpoint.max_keep_ckpts': 3,
    }
    return demo_runner(root, name, **settings | options)


def damages(whole: Path) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """What may have happened to a file."""
    size = (whole / f'iter_{STEPS}.pth').stat().st_size
    chance = random.Random(random.random())  # runs seed the global one

    def cut(path: Path, place: int) -> None:
        os.truncate(path, place)

    def zero(path: Path, place: int) -> None:
        overwrite(path, place, bytes(4096))

    def flip(path: Path, place: int) -> None:
        with path.open('rb') as file:
            file.seek(place)
            byte = file.read(1)[0]
        overwrite(path, place, bytes([byte ^ 1 << chance.randrange(8)]))

    for name, spoil in (
        ('truncated', cut),
        ('4 KB zeroed', zero),
        ('a bit flipped', flip),
    ):
        # The last of them meet the archive's list of contents.
        places = [chance.randrange(size) for _ in range(PLACES)]
        places += [size - n for n in (1, 10, 100, 1000, 10000)] + [0, 10, 40]
        for place in places:
            yield (
                f'{name}, at {place}',
                lambda path, spoil=spoil, place=place: spoil(path, place),
            )
    for how in (
        'empty',
        'random',
        'zeroed',
        'truncated',
        'an archive of something else',
    ):
        yield f'other, {how}', lambda path, how=how: damage(path, how)
    for name, content in (
        ('a text', b'<html>404 Not Found</html>'),
        ('zeros', bytes(size)),
    ):
        yield (
            f'other, {name}',
            lambda path, content=content: path.write_bytes(content),
        )
    yield 'other, a folder', lambda path: (path.unlink(), path.mkdir())
    yield 'other, gone', lambda path: path.unlink()
    yield 'other, a link to nothing', dangle


def overwrite(path: Path, place: int, content: bytes) -> None:
    """Write into the middle of a file."""
    with path.open('r+b') as file:
        file.seek(place)
        file.write(content[: path.stat().st_size - place])


def dangle(path: Path) -> None:
    """Put a link to nothing in a file's place."""
    path.unlink(missing_ok=True)
    path.symlink_to('nowhere')


def pointers() -> Iterator[tuple[str, Callable[[Path], None]]]:
    """What last_checkpoint may be."""
    for name, text in (
        ('of another place', '/elsewhere/iter_6.pth'),
        ('at nothing', '/elsewhere/iter_8.pth'),
        ('at a folder', '/tmp'),
        ('empty', ''),
        ('at an older one', 'iter_2.pth'),
    ):
        yield name, lambda path, text=text: path.write_text(text)
    yield 'random', lambda path: path.write_bytes(os.urandom(500))
    yield 'of 10000 letters', lambda path: path.write_text('x' * 10000)
    yield 'with a zero byte', lambda path: path.write_bytes(b'a\0b.pth')
    yield 'gone', lambda path: path.unlink()
    yield 'a folder', lambda path: (path.unlink(), path.mkdir())
    yield 'a link to nothing', dangle


def judge(work_dir: Path, states: dict[str, dict]) -> str:
    """What is wrong with how a damaged checkpoint is met, '' if nothing."""
    path = work_dir / f'iter_{STEPS}.pth'
    for reader in (read_checkpoint, CheckpointLoader.load_checkpoint):
        try:
            found = reader(str(path))
        except (CheckpointError, FileNotFoundError) as error:
            if str(path) not in str(error):
                return f'{reader.__name__} names no file: {error}'
        except Exception as error:
            return f'{reader.__name__}: {type(error).__name__}: {error}'
        else:
            state = {key: found.get(key) for key in states[path.name]}
            if not same(state, states[path.name]):
                return f'{reader.__name__} gives what was not written'
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


def resume(root: Path, name: str, states: dict[str, dict]) -> str:
    """Resume a run and compare its end, unless it is refused clearly."""
    try:
        runner(root, name, resume=True).train()
    except Exception as error:
        if isinstance(error, CheckpointError) and 'folder' in str(error):
            return ''
        return f'not resumed: {type(error).__name__}: {error}'
    path = root / name / f'iter_{STEPS}.pth'
    if not path.is_file():
        return f'{path.name} is missing in the end'
    return '' if same(state_of(path), states[path.name]) else 'differs'


def disks(folder: Path) -> Iterator[Outcome]:
    """Work dirs that cannot be written to."""
    row = 'disk'
    disk = folder / 'disk'
    disk.mkdir()
    mount = ['mount', '-t', 'tmpfs', 'tmpfs', str(disk)]
    for size in (0.1, 1, 4, 9, 20):
        done = subprocess.run([*mount, '-o', f'size={size * 1024:.0f}k'])
        if done.returncode:
            print('no right to mount a small disk: not tried')
            break
        try:
            # The images lie elsewhere.
            problem = refused(folder, 'disk/run', 'disk|space', disk)
        finally:
            subprocess.run(['umount', '-l', disk], check=True)
        yield Outcome(row, f'of {size} MiB', not problem, problem)
    done = subprocess.run([*mount, '-o', 'ro'])
    if not done.returncode:
        problem = refused(folder, 'disk/run', 'Read-only', disk)
        subprocess.run(['umount', '-l', disk], check=True)
        yield Outcome(row, 'read-only', not problem, problem)
    (folder / 'file').write_text('')
    problem = refused(folder, 'file', 'file', None)
    yield Outcome(row, 'a file in place of the work dir', not problem, problem)
    problem = refused(folder, 'file/run', 'file', None)
    yield Outcome(row, 'a work dir in a file', not problem, problem)


def refused(root: Path, name: str, word: str, disk: Path | None) -> str:
    """Train where it cannot be written; what is wrong, '' if nothing."""
    try:
        runner(root, name).train()
    except OSError as error:
        if not re.search(word, str(error)) or str(root) not in str(error):
            return f'{type(error).__name__} names no file: {error}'
    except Exception as error:
        return f'{type(error).__name__}: {error}'
    else:
        return 'no error'
    if disk is not None:
        for path in disk.rglob('*'):
            if path.name.endswith('.incomplete'):
                return f'{path.name} is left'
            if path.suffix == '.pth':
                read_checkpoint(path)
    return ''
