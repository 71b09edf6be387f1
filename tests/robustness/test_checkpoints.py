# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Files that are hostile or damaged, and runs that would lose others."""

import io
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from mmengine.dist import get_rank

from mmmoca.checkpoints import (
    CheckpointError,
    FolderLock,
    guarded,
    newest_checkpoint,
    read_checkpoint,
)
from mmmoca.engine import AtomicCheckpointHook, NonFiniteStateError

from ..distributed import run_processes
from ..runs import assert_same, demo_runner, scalars
from ..tools import python
from .payloads import write_payload

OPTIONS = {
    'train_cfg.max_iters': 6,
    'train_cfg.val_interval': 100,
    'default_hooks.checkpoint.interval': 2,
}


def build(root, name, **options):
    return demo_runner(root, name, **OPTIONS | options)


@pytest.fixture(scope='module')
def finished(root):
    """The work dir of a run with checkpoints of iterations 2, 4 and 6."""
    keep = {'default_hooks.checkpoint.max_keep_ckpts': 3}
    build(root, 'finished', **keep).train()
    return root / 'finished'


def test_the_config_of_a_checkpoint_is_not_run(root, finished, tmp_path):
    """MMEngine does so with ``meta['config']`` when it resumes."""
    marker, path = tmp_path / 'it_ran', tmp_path / 'a.pth'
    checkpoint = read_checkpoint(finished / 'iter_4.pth')
    checkpoint['meta']['config'] = f"import os; os.mkdir('{marker}')"
    torch.save(checkpoint, path)
    build(root, 'config', resume=True, load_from=str(path)).train()
    assert not marker.exists()


@pytest.mark.parametrize('value, runs', [('1', True), ('0', False)])
def test_whoever_insists_can_run_it(tmp_path, monkeypatch, value, runs):
    monkeypatch.setenv('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', value)
    path, marker = tmp_path / 'a.pth', tmp_path / 'it_ran'
    write_payload(path, marker)
    with nullcontext() if runs else pytest.raises(CheckpointError):
        read_checkpoint(path)
    assert marker.exists() == runs


def damage(path, how):
    content = bytearray(path.read_bytes())
    if how == 'zeroed':
        # The middle of the largest tensor.
        with zipfile.ZipFile(path) as archive:
            largest = max(archive.infolist(), key=lambda i: i.file_size)
        middle = largest.header_offset + largest.file_size // 2
        content[middle : middle + 64] = bytes(64)
    elif how == 'truncated':
        del content[len(content) // 2 :]
    elif how == 'random':
        content[:] = os.urandom(len(content))
    elif how == 'empty':
        content.clear()
    elif how == 'an archive of something else':
        file = io.BytesIO()
        with zipfile.ZipFile(file, 'w') as archive:
            archive.writestr('readme.txt', 'hello')
        content[:] = file.getvalue()
    path.write_bytes(content)


@pytest.mark.parametrize(
    'how',
    ['zeroed', 'truncated', 'random', 'empty', 'an archive of something else'],
)
def test_damaged_files_are_passed_over(tmp_path, how):
    for number in (8, 9, 10):
        torch.save(dict(a=torch.rand(1000)), tmp_path / f'iter_{number}.pth')
    damage(tmp_path / 'iter_10.pth', how)
    torch.save(dict(a=torch.rand(10)), tmp_path / 'best_iter_12.pth')
    # The folder was moved here from another place.
    (tmp_path / 'last_checkpoint').write_text('/elsewhere/iter_10.pth')
    newest, problems = newest_checkpoint(tmp_path, 'iter_{}.pth')
    assert newest.name == 'iter_9.pth'
    (problem,) = problems
    assert 'iter_10.pth' in problem and ('is damaged' in problem) == (
        how == 'zeroed'
    )
    for lazy in (False, True) if how != 'random' else ():
        with pytest.raises(CheckpointError, match='iter_10.pth'):
            read_checkpoint(tmp_path / 'iter_10.pth', lazy)


def test_resumes_the_newest_intact_one(root, finished):
    moved = root / 'moved'
    shutil.copytree(finished, moved)
    expected = read_checkpoint(moved / 'iter_6.pth')['state_dict']
    damage(moved / 'iter_6.pth', 'truncated')
    runner = build(root, 'moved', resume=True)
    runner.train()
    assert runner._load_from == guarded(moved / 'iter_4.pth')
    assert_same(runner.model.state_dict(), expected)


def test_checkpoints_lie_in_the_work_dir():
    with pytest.raises(ValueError, match='work_dir'):
        AtomicCheckpointHook(out_dir='elsewhere')


@pytest.mark.processes
def test_one_run_a_folder(root):
    folder = root / 'shared'
    hold = (
        'import sys; from mmmoca.checkpoints import FolderLock; '
        'lock = FolderLock(sys.argv[1]); print("held", flush=True); input()'
    )
    holder = subprocess.Popen(
        [sys.executable, '-c', hold, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    # What it imports prints lines of its own.
    assert b'held\n' in iter(holder.stdout.readline, b'')
    with pytest.raises(RuntimeError, match=f'process {holder.pid} on'):
        build(root, 'shared').train()
    holder.kill()
    holder.wait()
    FolderLock(folder).release()


def test_one_run_a_folder_within_a_process(tmp_path):
    """A second lock takes over what an exception left in its thread."""
    first, lock = FolderLock(tmp_path), FolderLock(tmp_path)
    first.release()  # it has nothing any more
    with ThreadPoolExecutor() as pool, pytest.raises(RuntimeError):
        pool.submit(FolderLock, tmp_path).result()
    take = 'import fcntl, sys; fcntl.lockf(open(sys.argv[1], "a"), 6)'
    other = '-c', take, tmp_path / '.lock'
    assert python(*other).returncode == 1
    lock.release()
    assert python(*other).returncode == 0


@pytest.mark.parametrize('name', ['interrupted.pth', 'best_top1_iter_4.pth'])
@pytest.mark.parametrize('resume', [False, True])
def test_nothing_starts_over_what_a_run_has_left(root, name, resume):
    folder = root / f'left_{name}_{resume}'
    folder.mkdir()
    torch.save(dict(a=torch.rand(10)), folder / name)
    before = (folder / name).read_bytes()
    with pytest.raises(CheckpointError):
        build(root, folder.name, resume=resume).train()
    assert (folder / name).read_bytes() == before


def test_checkpoints_that_are_not_finite_are_passed_over(tmp_path):
    for number, value in ((2, 1.0), (4, float('nan'))):
        state = dict(a=torch.tensor([0.0, value]), b=torch.tensor(1))
        torch.save(dict(state_dict=state), tmp_path / f'iter_{number}.pth')
    newest, (problem,) = newest_checkpoint(tmp_path, 'iter_{}.pth')
    assert newest.name == 'iter_2.pth' and 'iter_4.pth' in problem


def at(runner, moment, iteration, act):
    """Let something happen when a run reaches a hook in an iteration."""
    call_hook = runner.call_hook

    def call(name, **kwargs):
        if (name, runner.iter) == (moment, iteration):
            act()
        call_hook(name, **kwargs)

    runner.call_hook = call


@pytest.mark.parametrize('last', [True, False])
def test_weights_that_are_not_finite_are_not_written(root, last):
    """The loss of the step before was finite."""
    work_dir = root / f'poisoned_{last}'
    runner = build(root, work_dir.name, **{'train_cfg.max_iters': 4})

    def poison():
        with torch.no_grad():
            runner.model.backbone.cls_token[0, 0, 0] = float('nan')

    at(runner, 'after_train_iter', 3 if last else 1, poison)
    good = 'iter_2.pth' if last else 'Start again'
    with pytest.raises(NonFiniteStateError, match=rf'cls_token.*{good}'):
        runner.train()
    written = {path.name for path in work_dir.glob('*.pth*')}
    assert written == ({'iter_2.pth'} if last else set())


# Validation follows the third iteration, when the interval changes.
VALIDATED = {
    'train_cfg.val_interval': 100,
    'train_cfg.dynamic_intervals': [(4, 3)],
}
# Of the signal: what runs, after how many iterations, and how many are saved.
MOMENTS = [
    ('before_train_iter', 1, 2),
    ('before_train_iter', 2, 4),
    ('before_val_epoch', 3, 4),
]


@pytest.mark.slow
@pytest.mark.parametrize(('moment', 'iteration', 'saved'), MOMENTS)
def test_a_signal_saves_the_run(
    root, finished, moment, iteration, saved, capfd
):
    """And the resumed run ends as if there had been none."""
    work_dir = f'stopped_{moment}_{iteration}'
    runner = build(root, work_dir, **VALIDATED)
    stop = partial(os.kill, os.getpid(), signal.SIGTERM)
    at(runner, moment, iteration, stop)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as exited:
        runner.train()
    assert exited.value.code == os.EX_TEMPFAIL
    assert 'SIGTERM' in capfd.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before
    interrupted = root / work_dir / 'interrupted.pth'
    assert read_checkpoint(interrupted)['meta']['iter'] == saved
    resumed = build(root, work_dir, resume=True, **VALIDATED)
    resumed.train()
    assert resumed._load_from == guarded(interrupted)
    assert len(scalars(resumed, 'val/knn/top1_k20')) == 2
    expected = read_checkpoint(finished / 'iter_6.pth')['state_dict']
    assert_same(resumed.model.state_dict(), expected)
    assert not interrupted.exists()


def stop_one_of_two(root):
    """The second process gets the signal; how both end."""
    runner = build(root, 'together')
    number = signal.SIGUSR1 if get_rank() else 0
    at(runner, 'before_train_iter', 1, partial(os.kill, os.getpid(), number))
    with pytest.raises(SystemExit) as exited:
        runner.train()
    return exited.value.code, runner.iter


@pytest.mark.processes
def test_a_signal_to_one_process_stops_all(root):
    results = run_processes(stop_one_of_two, 2, root)
    assert results == [(os.EX_TEMPFAIL, 1)] * 2
    file = root / 'together' / 'interrupted.pth'
    assert read_checkpoint(file)['meta']['iter'] == 2
