# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checkpoints appear whole or not at all, the best one too."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from mmengine.logging import MessageHub, MMLogger

from mmmoca.engine import AtomicCheckpointHook


class Runner:
    """What the hook needs of one; a write may stop half-way."""

    def __init__(self, work_dir):
        self.work_dir = str(work_dir)
        self.logger = MMLogger.get_current_instance()
        self.message_hub = MessageHub(f'hub_{id(self)}')
        self.epoch = self.iter = 0
        self.max_iters = 100
        self.optim_wrapper = SimpleNamespace(_accumulative_counts=1)
        self.train_dataloader = [None]
        self.stops = None

    def save_checkpoint(self, out_dir, filename, **kwargs):
        path = Path(out_dir) / filename
        if self.stops:
            path.write_bytes(b'half')
            raise self.stops
        torch.save(dict(epoch=self.epoch), path)


def epoch(hook, runner, accuracy):
    hook.after_train_epoch(runner)
    runner.epoch += 1
    hook.after_val_epoch(runner, dict(top1=accuracy))


@pytest.fixture
def runner(tmp_path):
    return Runner(tmp_path)


@pytest.fixture
def hook(runner):
    hook = AtomicCheckpointHook(interval=1, save_best='top1', max_keep_ckpts=2)
    hook.save_last = False
    hook.before_train(runner)
    return hook


def files(runner):
    return {path.name for path in Path(runner.work_dir).glob('*.pth*')}


def test_best_and_last_are_kept(hook, runner):
    for accuracy in (10.0, 30.0, 20.0, 25.0):
        epoch(hook, runner, accuracy)
    assert files(runner) == {
        'epoch_3.pth',
        'epoch_4.pth',
        'best_top1_epoch_2.pth',
    }
    last = Path(runner.work_dir, 'last_checkpoint').read_text()
    assert last == str(Path(runner.work_dir, 'epoch_4.pth'))


@pytest.mark.parametrize(
    'stops, raised',
    [
        (KeyboardInterrupt(), pytest.raises(KeyboardInterrupt)),
        # What a full disk makes of MMEngine's and of PyTorch's writing.
        (OSError(28, 'x'), pytest.raises(OSError, match='best_.*disk full')),
        (RuntimeError('x'), pytest.raises(OSError, match='best_.*disk full')),
    ],
    ids=['interrupt', 'os', 'torch'],
)
def test_a_write_of_the_best_that_stops_half_way(hook, runner, stops, raised):
    """That of the latest is interrupted in ``test_resume``."""
    epoch(hook, runner, 10.0)
    kept = files(runner)
    runner.stops = stops
    with raised:
        hook.after_val_epoch(runner, dict(top1=30.0))
    assert files(runner) == kept
    for name in kept:
        torch.load(Path(runner.work_dir, name), weights_only=True)
