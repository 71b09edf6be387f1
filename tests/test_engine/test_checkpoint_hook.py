# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checkpoints appear whole or not at all, and so does the best one."""

from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from mmengine.logging import MessageHub, MMLogger
from mmengine.runner import save_checkpoint

from mmmoca.engine import AtomicCheckpointHook


class Runner:
    """The parts of a runner that the hook needs."""

    def __init__(self, work_dir):
        self.work_dir = str(work_dir)
        self.logger = MMLogger.get_current_instance()
        self.message_hub = MessageHub(f'hub_{id(self)}')
        self.epoch = self.iter = 0
        self.max_iters = 9
        self.optim_wrapper = mock.Mock()  # each iteration is a step

    def save_checkpoint(self, out_dir, filename, *_, backend_args, **__):
        save_checkpoint(
            dict(epoch=self.epoch),
            str(Path(out_dir, filename)),
            backend_args=backend_args,
        )


@pytest.fixture
def runner(tmp_path):
    return Runner(tmp_path)


@pytest.fixture
def epoch(runner):
    """Return a function that runs an epoch with a given accuracy."""
    hook = AtomicCheckpointHook(interval=1, save_best='top1', max_keep_ckpts=1)
    hook.save_last = False
    hook.before_train(runner)

    def do(accuracy):
        hook.after_train_epoch(runner)
        runner.epoch += 1
        hook.after_val_epoch(runner, dict(top1=accuracy))

    do.hook = hook
    return do


@pytest.mark.parametrize('loop', [None, SimpleNamespace()])
def test_the_best_of_a_run_without_validation(runner, loop):
    """Without validation, a message says that there is no best checkpoint.

    Other packages' loops cause no message, as their metrics are unknown.
    """
    hook = AtomicCheckpointHook(interval=1, save_best='top1')
    runner.val_loop, runner.logger = loop, mock.Mock()
    hook._check_best(runner)
    assert runner.logger.info.called == (loop is None)


def files(runner):
    return {path.name for path in Path(runner.work_dir).glob('*.pth*')}


def test_best_and_last_are_kept(epoch, runner):
    for accuracy in (10.0, 30.0, 20.0, 25.0):
        epoch(accuracy)
    assert files(runner) == {'epoch_4.pth', 'best_top1_epoch_2.pth'}
    last = Path(runner.work_dir, 'last_checkpoint').read_text()
    assert last == str(Path(runner.work_dir, 'epoch_4.pth'))
    # The best of a repeated epoch has the same name.
    runner.epoch = 1
    epoch(40.0)
    assert 'best_top1_epoch_2.pth' in files(runner)


def test_a_best_that_the_validation_does_not_have(runner):
    hook = AtomicCheckpointHook(interval=1, save_best='top5')
    hook.before_train(runner)
    with pytest.raises(ValueError, match='top1'):
        hook.after_val_epoch(runner, dict(top1=3.0))


@pytest.mark.parametrize('call', ['fsync', 'replace'])
def test_a_write_that_stops_half_way(epoch, runner, monkeypatch, call):
    epoch(10.0)
    kept = files(runner)
    full = mock.Mock(side_effect=[OSError(28, 'full'), OSError(28, 'full')])
    monkeypatch.setattr(f'mmmoca.engine.hooks.checkpoint_hook.os.{call}', full)
    hook = epoch.hook
    for name, write in (
        ('epoch_2', lambda: hook.after_train_epoch(runner)),
        ('best_top1', lambda: hook.after_val_epoch(runner, dict(top1=30))),
    ):
        # The error for a full disk does not name a file itself.
        with pytest.raises(OSError, match=name):
            write()
        assert files(runner) == kept
    for name in kept:
        torch.load(Path(runner.work_dir, name), weights_only=True)
    last = Path(runner.work_dir, 'last_checkpoint').read_text()
    assert last.endswith('epoch_1.pth')


def test_the_first_best_one_can_be_resumed(runner):
    """A resumable checkpoint follows at the end of the step in progress."""
    hook = AtomicCheckpointHook(interval=5, save_best='top1', by_epoch=False)
    hook.before_train(runner)
    runner.train_loop = SimpleNamespace()
    runner.iter = 1
    runner.optim_wrapper.should_update.return_value = False
    hook.after_val_epoch(runner, dict(top1=10.0))
    assert files(runner) == {'best_top1_iter_1.pth'}
    hook.after_train_iter(runner, 1)
    runner.optim_wrapper.should_update.return_value = True
    runner.iter = 2
    hook.after_train_iter(runner, 2)
    assert files(runner) == {'best_top1_iter_1.pth', 'iter_3.pth'}


def test_a_run_that_ends_early_leaves_its_last(runner):
    hook = AtomicCheckpointHook(interval=5)
    hook.before_train(runner)
    runner.epoch = 3
    runner.train_loop = SimpleNamespace(stop_training=True)
    hook.after_train(runner)
    assert files(runner) == {'epoch_3.pth'}
