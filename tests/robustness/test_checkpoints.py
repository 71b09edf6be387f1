# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Hostile and damaged files, and runs that could lose the work of others."""

import functools
import multiprocessing
import os
import shutil
import signal
import subprocess
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest
import torch
from mmengine.dist import get_rank
from torch.utils.data import DataLoader

from mmmoca.checkpoints import CheckpointError, guarded, read_checkpoint
from mmmoca.checkpoints.run_folder import FolderLock, newest_checkpoint
from mmmoca.engine import NonFiniteStateError
from mmmoca.engine.hooks.preemption_hook import start_worker
from mmmoca.engine.steps import advice_to_go_on
from mmmoca.engine.training import run

from ..helpers.distributed import run_processes
from ..helpers.errors import raises
from ..helpers.images import DEMO_CONFIG
from ..helpers.payloads import Call
from ..helpers.runs import assert_same, demo_config, demo_runner, scalars
from ..helpers.tools import python

pytestmark = pytest.mark.slow

OPTIONS = {
    'train_cfg.max_iters': 6,
    'train_cfg.val_interval': 100,
    'default_hooks.checkpoint.interval': 2,
}


def build(root, name, **options):
    return demo_runner(root, name, **OPTIONS | options)


def doubled(times):
    """Return a nested tuple whose text has 2**times parts."""
    value = ()
    for _ in range(times):
        value = value, value
    return value


# Contents of a file from which no run can continue.
NO_WEIGHTS = {
    'meta tensor': dict(state_dict=dict(a=torch.rand(3, device='meta'))),
    'no tensor': dict(state_dict=dict(a=torch.rand(3), b=[1.0])),
    'optimizer': dict(optimizer=None),
    'schedules': dict(param_schedulers={}),
    'epoch': dict(meta=dict(epoch=None)),
    'iter': dict(meta=dict(iter=35.5)),
    'number': dict(meta=dict(iter=2**70)),
    'memory': dict(meta=Call(bytearray, 2**60)),
    'attributes': dict(
        a=Call(
            torch._utils._rebuild_parameter_with_state,
            *(torch.rand(3), True, {}, 3),
        )
    ),
    'shared': dict(meta=dict(mmmoca=dict(grid=doubled(40)))),
    'keys': dict(meta={doubled(10): 3}),
    'nested': dict(meta=functools.reduce(lambda x, _: [x], range(300))),
}


@pytest.fixture(scope='module')
def finished(root):
    """Return the work dir of a run that has saved iterations 2, 4 and 6."""
    keep = {'default_hooks.checkpoint.max_keep_ckpts': 3}
    build(root, 'finished', **keep).train()
    return root / 'finished'


def damage(path, how):
    content = bytearray(path.read_bytes())
    if how == 'truncated':
        del content[len(content) // 2 :]
    elif how == 'damaged':
        # the middle of the largest tensor
        with zipfile.ZipFile(path) as archive:
            largest = max(archive.infolist(), key=lambda i: i.file_size)
        middle = largest.header_offset + largest.file_size // 2
        content[middle : middle + 64] = bytes(64)
    path.write_bytes(content)


@pytest.mark.parametrize(
    'how', ['damaged', 'truncated', 'not finite', *NO_WEIGHTS]
)
def test_damaged_files_are_passed_over(tmp_path, how):
    state = dict(a=torch.rand(9000), b=torch.tensor(1))
    for number in (8, 9, 10):
        file = tmp_path / f'iter_{number}.pth'
        if (number, how) == (10, 'not finite'):
            state['a'][3] = float('nan')
        torch.save(dict(state_dict=state if number == 10 else {}), file)
    if how in NO_WEIGHTS:
        torch.save(dict(state_dict=state) | NO_WEIGHTS[how], file)
    damage(file, how)
    torch.save(dict(a=torch.rand(10)), tmp_path / 'best_iter_12.pth')
    # The folder was moved here from another place.
    (tmp_path / 'last_checkpoint').write_text('/elsewhere/iter_10.pth')
    newest, (problem,) = newest_checkpoint(tmp_path, 'iter_{}.pth')
    assert newest.name == 'iter_9.pth'
    assert str(file) in problem
    for lazy in (False, True) if how in ('damaged', 'truncated') else ():
        with pytest.raises(CheckpointError, match='iter_10.pth'):
            read_checkpoint(file, lazy)


def test_resumes_the_newest_intact_one(root, finished, tmp_path):
    """A run resumes without running the config that the checkpoint contains.

    MMEngine would run it. The history may have values of other types.
    """
    moved, marker = root / 'moved', tmp_path / 'it_ran'
    shutil.copytree(finished, moved)
    expected = read_checkpoint(moved / 'iter_6.pth')['state_dict']
    damage(moved / 'iter_6.pth', 'truncated')
    checkpoint = read_checkpoint(moved / 'iter_4.pth')
    checkpoint['meta']['config'] = f"import os; os.mkdir('{marker}')"
    checkpoint['message_hub']['resumed_keys'] = {'train/loss': 35.5}
    torch.save(checkpoint, moved / 'iter_4.pth')
    runner = build(root, 'moved', resume=True)
    runner.train()
    assert runner._load_from == guarded(moved / 'iter_4.pth')
    assert_same(runner.model.state_dict(), expected)
    assert not marker.exists()
    # A copy without checkpoints does not use those of the original.
    (root / 'copy').mkdir()
    shutil.copy(finished / 'last_checkpoint', root / 'copy')
    runner = build(root, 'copy', resume=True)
    with mock.patch.object(runner, 'resume') as resumed:
        runner.train()
    assert runner.iter == 6 and not resumed.called
    assert advice_to_go_on(runner).endswith('copy/iter_6.pth')
    shutil.copy(finished / 'last_checkpoint', root / 'copy')
    assert str(finished) not in advice_to_go_on(runner)
    (root / 'copy/iter_6.pth').write_bytes(b'PK')
    with pytest.raises(CheckpointError, match='can be resumed'):
        build(root, 'copy', resume=True).train()
    # The error names the file.
    named = moved / 'named.pth'
    torch.save(checkpoint | dict(message_hub=[]), named)
    again = dict(resume=True, load_from=str(named))
    with pytest.raises(CheckpointError, match='named.pth'):
        build(root, 'named', **again).train()


def hold(folder, held):
    """Hold the lock of a folder in a process whose worker outlives it."""
    FolderLock(folder)
    if os.fork() == 0:
        time.sleep(30)
        os._exit(0)
    held.set()
    time.sleep(600)


@pytest.mark.processes
def test_one_run_a_folder(root):
    """A second run in a folder is refused and writes nothing.

    Its log could have the same name as that of the first run.
    """
    folder = root / 'shared'
    context = multiprocessing.get_context('forkserver')
    held = context.Event()
    holder = context.Process(target=hold, args=(folder, held))
    holder.start()
    assert held.wait(60)
    before = [*folder.rglob('*')]
    cfg = demo_config(root, 'shared', **OPTIONS | {'train_cfg.max_iters': 1})
    with pytest.raises(RuntimeError, match=str(holder.pid)):
        run(cfg)
    assert [*folder.rglob('*')] == before
    with pytest.raises(RuntimeError):  # a runner of another package
        build(root, 'shared', runner_type='Runner').train()
    holder.kill()
    holder.join()
    run(cfg)
    FolderLock(folder).release()
    assert 'max_iters=1' in (folder / DEMO_CONFIG.name).read_text()


def test_one_run_a_folder_within_a_process(tmp_path):
    """A lock replaces one that an exception has left in the same thread."""
    first, lock = FolderLock(tmp_path), FolderLock(tmp_path)
    first.release()  # the first lock holds nothing any more
    with ThreadPoolExecutor() as pool, pytest.raises(RuntimeError):
        pool.submit(FolderLock, tmp_path).result()
    take = 'import fcntl, sys; fcntl.lockf(open(sys.argv[1], "a"), 6)'
    other = '-c', take, tmp_path / '.lock'
    assert python(*other).returncode == 1
    lock.release()
    assert python(*other).returncode == 0


def test_nothing_starts_over_what_a_run_has_left(root):
    for name, resume, advice in (
        ('interrupted', False, '--resume'),
        ('best_top1_4', True, 'restore'),
    ):
        file = root / f'left_{resume}' / f'{name}.pth'
        file.parent.mkdir()
        file.touch()
        with pytest.raises(CheckpointError, match=advice):
            build(root, file.parent.name, resume=resume).train()
        assert file.exists()
    # MMEngine's own hook would overwrite the file.
    options = {'default_hooks.checkpoint.type': 'mmengine.CheckpointHook'}
    with pytest.raises(CheckpointError, match='--resume'):
        run(demo_config(root, 'left_False', **OPTIONS | options))


def warnings_of(runner):
    """Train; return the warnings of the run."""
    with mock.patch.object(runner.logger, 'warning') as warning:
        runner.train()
    return ' '.join(call.args[0] for call in warning.call_args_list)


def test_settings_that_change_a_resumed_run(root, finished):
    """A resumed run warns of changed settings, but keeps the saved seed."""
    again = dict(resume=True, load_from=f'{finished}/iter_6.pth')
    views = 'train_dataloader.dataset.pipeline.2.num_views'
    again |= {'model.head.lambda_img': 0.5, views: [2, 1]}
    again['randomness.seed'] = 3
    warnings = warnings_of(build(root, 'changed', **again))
    assert 'model.head.lambda_img' in warnings and views in warnings
    assert 'randomness.seed' not in warnings
    assert '6 of 6' in warnings  # nothing is left to do


def test_a_schedule_of_mmengine_stays(root):
    """The schedule is restored from the checkpoint, and a warning says so."""
    schedule = 'param_scheduler'
    kind = dict(type='MultiStepLR', by_epoch=False, milestones=[1, 2])
    keep = {'default_hooks.checkpoint.max_keep_ckpts': -1}
    steps = keep | {'train_cfg.max_iters': 4, schedule: [kind]}
    again = dict(resume=True, load_from=f'{root}/steps/iter_2.pth')
    build(root, 'steps', **steps).train()
    kind = dict(kind, milestones=[1, 3])
    runner = build(root, 'other_steps', **steps | again | {schedule: [kind]})
    warnings = warnings_of(runner)
    assert 'MultiStepLR' in warnings and schedule not in warnings
    assert sorted(runner.param_schedulers[0].milestones) == [1, 2]


def test_states_of_an_optimiser_stay_with_their_parameters(root):
    """A run refuses other groups of equal sizes, and reordered schedules."""
    one, other = (
        {'optim_wrapper.paramwise_cfg.custom_keys': {key: dict(lr_mult=0.5)}}
        for key in ('backbone.layers.0.', 'backbone.layers.1.')
    )
    two = [
        dict(type='mmmoca.CosineWeightDecay', eta_min=0.4, by_epoch=False),
        dict(type='mmmoca.WarmupCosineLR', by_epoch=False),
        dict(type='ConstantMomentum', factor=0.5, end=9, by_epoch=False),
    ]
    short = {'train_cfg.max_iters': 2}
    build(root, 'groups', **short | one, param_scheduler=two).train()
    again = dict(resume=True, load_from=f'{root}/groups/iter_2.pth')
    for name, changed in (
        ('groups_other', other | dict(param_scheduler=two)),
        ('groups_order', one | dict(param_scheduler=two[::-1])),
    ):
        with pytest.raises(ValueError, match='load_from'):
            build(root, name, **again | changed).train()
    two[1] = dict(two[1], warmup=1)
    two[2] = dict(two[2], type='mmengine.ConstantMomentum')  # same type
    runner = build(root, 'groups_more', **again | one, param_scheduler=two)
    # Both our change and what MMEngine restores are reported.
    warnings = warnings_of(runner)
    assert 'warmup=1' in warnings and 'ConstantMomentum' in warnings
    assert runner.iter == 6


def at(runner, moment, iteration, act):
    """Call ``act`` when a run reaches a hook in a given iteration."""
    call_hook = runner.call_hook

    def call(name, **kwargs):
        if (name, runner.iter) == (moment, iteration):
            act()
        call_hook(name, **kwargs)

    runner.call_hook = call


def stop_in(runner, iteration, number=signal.SIGTERM):
    """Signal the process and its data workers, as Slurm does."""

    def stop():
        workers = [child.pid for child in multiprocessing.active_children()]
        pids = map(str, [*workers, os.getpid()])
        subprocess.run(['kill', f'-{int(number)}', *pids], check=True)

    at(runner, 'after_train_iter', iteration, stop)


@pytest.mark.parametrize('last', [True, False])
def test_weights_that_are_not_finite_are_not_written(root, last):
    """Weights may be non-finite although the last loss was finite."""
    work_dir = root / f'poisoned_{last}'
    runner = build(root, work_dir.name, **{'train_cfg.max_iters': 4})

    def poison():
        with torch.no_grad():
            runner.model.backbone.cls_token[0, 0, 0] = float('nan')

    at(runner, 'after_train_iter', 3 if last else 1, poison)
    good = 'iter_2.pth' if last else ''
    with raises(NonFiniteStateError, 'cls_token', good):
        runner.train()
    written = {path.name for path in work_dir.glob('*.pth*')}
    assert written == ({'iter_2.pth'} if last else set())


def test_a_signal_saves_the_run(root, finished, capfd):
    """The resumed run ends as if there had been no signal.

    The validation after the second iteration runs before the run is saved.
    """
    options = {
        'train_cfg.val_interval': 2,
        'train_cfg.dynamic_intervals': [(4, 3)],
        'train_dataloader.num_workers': 1,
    }
    runner = build(root, 'stopped', **options)
    stop_in(runner, 1)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as exited:
        runner.train()
    assert exited.value.code == os.EX_TEMPFAIL
    assert 'SIGTERM' in capfd.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before
    interrupted = root / 'stopped' / 'interrupted.pth'
    saved = read_checkpoint(interrupted)
    assert saved['meta']['iter'] == 2
    # The values since the last log line are saved, too.
    logged = saved['message_hub']['log_scalars']
    assert len(logged['train/loss'][0]) == 2
    assert len(logged['val/knn/top1_k20'][0]) == 1
    resumed = build(root, 'stopped', resume=True, **options)
    resumed.train()
    assert resumed._load_from == guarded(interrupted)
    assert len(scalars(resumed, 'val/knn/top1_k20')) == 3
    expected = read_checkpoint(finished / 'iter_6.pth')['state_dict']
    assert_same(resumed.model.state_dict(), expected)
    assert not interrupted.exists()


def batch_larger_than_a_pipe(_):
    return b'0' * 2**20


def load_until_killed(pids):
    """Load data; this process and its worker hold the pipe open."""
    loader = DataLoader(
        range(8),
        collate_fn=batch_larger_than_a_pipe,
        num_workers=1,
        worker_init_fn=functools.partial(start_worker, None),
    )
    batches = iter(loader)
    next(batches)
    pids.send(multiprocessing.active_children()[0].pid)
    signal.pause()


def test_workers_end_with_a_run_that_is_killed():
    """The kernel may kill a run that uses too much memory."""
    received, sent = multiprocessing.Pipe(duplex=False)
    run = multiprocessing.Process(target=load_until_killed, args=(sent,))
    run.start()
    sent.close()
    worker = received.recv()
    run.kill()
    ended = received.poll(20)
    if not ended:
        os.kill(worker, signal.SIGKILL)
    assert ended


def test_a_signal_where_every_step_is_validated(root):
    options = {'train_cfg.val_interval': 1}
    runner = build(root, 'validated', **options)
    stop_in(runner, 1)
    with pytest.raises(SystemExit):
        runner.train()
    assert runner.iter == 2
    resumed = build(root, 'validated', resume=True, **options)
    stop_in(resumed, 5)
    resumed.train()  # The last validation runs; then the run has finished.
    assert len(scalars(resumed, 'val/knn/top1_k20')) == 6


def stop_one_of_two(root):
    """Signal only the second process; return how this process ends."""
    runner = build(root, 'together')
    stop_in(runner, 1, signal.SIGUSR1 if get_rank() else 0)
    with pytest.raises(SystemExit) as exited:
        runner.train()
    return exited.value.code, runner.iter


@pytest.mark.processes
def test_a_signal_to_one_process_stops_all(root):
    results = run_processes(stop_one_of_two, 2, root)
    assert results == [(os.EX_TEMPFAIL, 2)] * 2
    file = root / 'together' / 'interrupted.pth'
    assert read_checkpoint(file)['meta']['iter'] == 2
