# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images that are broken or awkward, and folders that change meanwhile.

Each trial adds something to a folder of 16 good images and takes them all
through the quick start's data set, pipeline and loader, with a worker; once
with the quick start's LoadImage and once with one that shrinks as it decodes.
What can be read must arrive, what cannot must be named in the log, and
nothing may hang. In the end all of it together, and a folder that loses
images, meet a run of ``tools/train.py``.
"""

import multiprocessing
import os
import re
import shutil
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.registry import DefaultScope
from mmengine.runner import Runner

from mmmoca.messages import printable

from ...images import write_images
from .awkward import Case, cases
from .trials import DEMO_CONFIG, NO_VALIDATION, Outcome, log_of, train

BATCH = 4
SECONDS = 60


def trials(folder: Path) -> Iterator[Outcome]:
    """Every case with both loaders, then two real runs."""
    folder.chmod(0o755)  # for the trial that is not root
    write_images(folder / 'good', train=8, val=1, classes=2)
    for case in cases():
        for reduce_to in (None, 24):
            trial = folder / 'trial'
            shutil.rmtree(trial, ignore_errors=True)
            images = trial / 'train' / 'class_0'
            shutil.copytree(folder / 'good', trial)
            case.add(images)
            problem = judge(case, images, reduce_to)
            yield Outcome(case.row, case.name, not problem, problem)
    yield from real_runs(folder)


class Loaded(NamedTuple):
    """What a loader gave: paths, its log, and the error if there was one."""

    paths: list[str]
    log: str
    error: str


def judge(case: Case, images: Path, reduce_to: int | None) -> str:
    """Take the folder through the loader; what is wrong, '' if nothing."""
    loaded = load_apart(images, reduce_to, case.change)
    if loaded is None:
        return f'hangs: no end in {SECONDS} s'
    last = loaded.error.strip().rpartition('\n')[2]
    if case.refused:
        said = re.search(case.refused, last)
        return '' if said else f'said {last or "nothing"!r}'
    if last:
        return last
    good = {
        str(images.with_name(f'class_{label}') / f'{number}.jpg')
        for label in range(2)
        for number in range(8)
    }
    good -= {str(images / name) for name in case.fates}
    problems = [f'{path} is missing' for path in good - set(loaded.paths)]
    expected = {'either': [['named'], ['read']], 'left out': [[]]}
    for name, fate in case.fates.items():
        met = list(_met(name, loaded))
        if case.change and fate == 'named':
            met = met[:1]  # it was read before the change
        if met not in expected.get(fate, [[fate]]):
            problems.append(f'{name!r} should be {fate}, but is {met}')
    return '; '.join(problems)


def _met(name: str, loaded: Loaded) -> Iterator[str]:
    """What became of a file that the case has added."""
    if (
        f'/class_0/{printable(name)}: ' in loaded.log
        and '; 1 unreadable' in loaded.log
    ):
        yield 'named'
    for path in loaded.paths:
        if '/class_0/' in path and os.path.basename(path) == name:
            yield 'read'
            return


def load_apart(
    images: Path,
    reduce_to: int | None,
    change: Callable[[Path], None] | None,
) -> Loaded | None:
    """Load in a process of its own; None if it does not end."""
    context = multiprocessing.get_context('fork')
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=_load, args=(sender, images, reduce_to, change)
    )
    process.start()
    try:
        return receiver.recv() if receiver.poll(SECONDS) else None
    finally:
        if process.is_alive():
            process.join(5)
        if process.is_alive():
            os.killpg(process.pid, 9)
        process.join()


def _load(
    sender: object,
    images: Path,
    reduce_to: int | None,
    change: Callable[[Path], None] | None,
) -> None:
    os.setsid()  # its worker is in its group
    root = images.parents[1]
    log = root / 'log'
    MMLogger.get_instance('images', log_file=str(log), log_level='WARNING')
    if any(not path.stat().st_mode & 0o777 for path in _regular(images)):
        os.chmod(root, 0o777)
        os.chmod(log, 0o666)
        os.seteuid(65534)  # root may read everything
    paths, error = [], ''
    try:
        for path in loaded_paths(root, reduce_to, bool(change)):
            paths.append(path)
            if change is not None and len(paths) == BATCH:
                change(images)
    except Exception:
        error = traceback.format_exc()
    sender.send(Loaded(paths, log.read_text() if log.exists() else '', error))


def _regular(folder: Path) -> Iterator[Path]:
    return (p for p in folder.iterdir() if p.is_dir() or p.is_file())


def loaded_paths(
    root: Path, reduce_to: int | None, long: bool
) -> Iterator[str]:
    """Paths of the images that the quick start's loader gives, in order."""
    cfg = Config.fromfile(DEMO_CONFIG).train_dataloader
    cfg.dataset.data_root = str(root)
    cfg.update(batch_size=BATCH, persistent_workers=False, drop_last=False)
    cfg.sampler.infinite = long
    cfg.dataset.pipeline[1].reduce_to = reduce_to
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        loader = Runner.build_dataloader(cfg, seed=0)
    batches = 5 * len(loader)
    for batch, _ in zip(loader, range(batches)):
        assert batch['inputs'][0].shape[1:] == (3, 48, 48)
        yield from (s.metainfo['img_path'] for s in batch['data_samples'])


def real_runs(folder: Path) -> Iterator[Outcome]:
    """All kinds in one folder; and one that loses images meanwhile."""
    many = folder / 'many'
    write_images(many, train=100, val=1)
    named = []
    for number, case in enumerate(cases()):
        if case.change or case.refused:
            continue
        place = many / 'train' / f'{number:03}'
        place.mkdir()
        case.add(place)
        if 'may not' not in case.name:
            named += [place / k for k, v in case.fates.items() if v == 'named']
    options = NO_VALIDATION | {
        'train_cfg.max_iters': 60,
        'train_dataloader.dataset.data_root': many,
        'train_dataloader.batch_size': 16,
        'default_hooks.logger.interval': 10,
    }
    row = 'images: tools/train.py'
    run = train(folder / 'all', options)
    code = run.wait(300)
    log = log_of(folder / 'all').read_text(errors='backslashreplace')
    silent = [path for path in named if printable(path) not in log]
    said = f'status {code}; {len(named) - len(silent)} of {len(named)} named'
    yield Outcome(row, 'all kinds', code == 0 and not silent, said)
    run = train(folder / 'losing', options | {'train_cfg.max_iters': 100})
    while run.poll() is None and '10/100' not in (
        text := log_of(folder / 'losing').read_text(errors='replace')
    ):
        time.sleep(0.2)
    gone = sorted((many / 'train' / 'class_0').iterdir())[:20]
    for path in gone:
        path.unlink()
    code = run.wait(300)
    text = log_of(folder / 'losing').read_text(errors='replace')
    met = sum(f'{path}:' in text for path in gone)
    said = f'status {code}; {met} of {len(gone)} named'
    yield Outcome(row, 'images vanish', code == 0 and met > 0, said)
