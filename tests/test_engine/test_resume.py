# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Counts that a run keeps and that a resumed run continues.

test_integration checks that a resumed run continues bit for bit.
"""

import json
import random
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import RepeatDataset

from mmmoca.checkpoints import read_checkpoint
from mmmoca.datasets import ImageFolder, ImageShards
from mmmoca.engine.hooks import ReproducibilityHook
from mmmoca.engine.resume_check import (
    changed_settings,
    images_digest,
    training_settings,
)

from ..helpers.runs import (
    NO_VALIDATION,
    assert_same,
    by_epochs,
    demo_runner,
    scalars,
    state_of,
)
from ..helpers.stores import write_shards

BATCH = 'train_dataloader.batch_size'


def train(root, name, **options):
    runner = demo_runner(root, name, **options)
    runner.train()
    return runner


def train_and_resume(root, name, **options):
    """Train a run, and resume another one from its second iteration."""
    options |= {
        'default_hooks.checkpoint.interval': 2,
        'default_hooks.checkpoint.max_keep_ckpts': -1,
    }
    whole = train(root, name, **options)
    again = dict(resume=True, load_from=f'{whole.work_dir}/iter_2.pth')
    return whole, train(root, f'{name}_resumed', **options, **again)


@pytest.fixture(scope='module')
def first_epoch(root):
    """Return the checkpoint of the first epoch, with 48 images and 6 steps.

    The sampler ends with the epoch, whatever the config says.
    """
    infinite = {'train_dataloader.sampler.infinite': True}
    assert train(root, 'epochs', **by_epochs(1) | infinite).iter == 6
    return read_checkpoint(root / 'epochs' / 'iter_6.pth')


@pytest.mark.slow
@pytest.mark.parametrize(
    ('name', 'count'),
    [
        ('global_batch_size', 8),
        ('micro_batches', 1),
        ('num_images', 48),
        ('iterations_per_epoch', 6),  # one step fewer, as on more ranks
    ],
)
def test_a_run_goes_on_in_the_same_steps(root, first_epoch, name, count):
    meta = first_epoch['meta'] | {name: count + 1}
    torch.save(first_epoch | dict(meta=meta), root / f'{name}.pth')
    options = dict(resume=True, load_from=f'{root}/{name}.pth')
    with pytest.raises(ValueError, match=f'{name}={count + 1}'):
        train(root, name, **by_epochs(2) | options)


@pytest.mark.slow
def test_a_run_goes_on_with_its_images(tmp_path, root, first_epoch):
    """The images may have moved, or be in other wrappers."""
    moved = shutil.copytree(root / 'train', tmp_path / 'moved' / 'train')
    again = dict(resume=True, load_from=f'{root}/epochs/iter_6.pth')
    again['train_dataloader.dataset.data_root'] = str(moved.parent)
    train(root, 'moved', **by_epochs(1) | again)
    first = min(moved.rglob('*.*'))
    first.rename(first.with_name('another.jpg'))
    with pytest.raises(ValueError):
        train(root, 'others', **by_epochs(1) | again)
    images = ImageFolder(str(moved), with_label=True)
    assert images_digest(images) not in (
        images_digest(ImageFolder(str(moved), with_label=False)),
        images_digest(images.get_subset([*range(47, -1, -1)])),
    )
    wrapped = RepeatDataset(images, 2)
    assert images_digest(wrapped) == images_digest(images)
    write_shards(moved, tmp_path / 'shards')
    shards = images_digest(ImageShards(str(tmp_path / 'shards')))
    moved_on = (tmp_path / 'shards').rename(tmp_path / 'others')
    assert images_digest(ImageShards(str(moved_on))) == shards


def test_settings_that_a_training_depends_on():
    """Settings at any depth count, except the images' paths and workers."""
    views = dict(type='MultiView', num_views=[2])
    dataset = dict(data_root='a', pipeline=[views], lazy_init=True)
    for key in ('dataset', 'datasets'):
        loader = dict(num_workers=2, dataset={key: dataset})
        before = training_settings(Config(dict(train_dataloader=loader)))
        loader |= dict(num_workers=3)
        dataset |= dict(data_root='b')
        after = training_settings(Config(dict(train_dataloader=loader)))
        assert changed_settings(before, after) == []
        views['num_views'] = [*views['num_views'], 1]
        after = training_settings(Config(dict(train_dataloader=loader)))
        (change,) = changed_settings(before, after)
        assert change.startswith(f'train_dataloader.dataset.{key}.pipeline.0')


@pytest.mark.slow
def test_a_sampler_that_cannot_be_skipped_into(root):
    """The epoch starts again, and steps are still counted."""
    sampler = dict(_delete_=True, type='DefaultSampler', shuffle=True)
    options = by_epochs(2) | {'train_dataloader.sampler': sampler, BATCH: 16}
    _, resumed = train_and_resume(root, 'anew', **options)
    assert (resumed.epoch, resumed.iter) == (2, 6)


@pytest.mark.slow
def test_a_schedule_that_pickles_code(root):
    schedule = dict(_delete_=True, type='OneCycleLR', eta_max=1e-3)
    schedule |= dict(total_steps=4, by_epoch=False)
    options = {'param_scheduler': schedule, 'train_cfg.max_iters': 4}
    runs = train_and_resume(root, 'cycle', **options | NO_VALIDATION)
    assert_same(*map(state_of, runs))


@pytest.mark.slow
def test_a_resumed_run_logs_the_same_lines(root):
    """The log is the same, though MMEngine counts a resumed epoch from 0.

    Gradient norms are logged for each step, not for each micro-batch.
    """
    options = by_epochs(2) | {
        'optim_wrapper.accumulative_counts': 2,
        'default_hooks.logger.interval': 3,
    }
    curves = []
    for runner in train_and_resume(root, 'lines', **options):
        (file,) = Path(runner.log_dir).glob('vis_data/scalars.json')
        lines = map(json.loads, file.read_text().splitlines())
        names = 'step', 'loss', 'grad_norm'
        curves.append([[line[name] for name in names] for line in lines])
    assert curves[0] == curves[1]
    assert [step for step, *_ in curves[1]] == [3, 6, 9, 12]
    assert len(scalars(runner, 'train/grad_norm')) == 6
    # Nothing in a checkpoint needs trust: it loads with weights_only.
    torch.load(f'{runner.work_dir}/iter_12.pth', weights_only=True)


def test_each_iteration_seeds_all_generators():
    """A resumed run needs no saved states of the generators."""

    def drawn(iteration):
        runner = mock.Mock(seed=3, iter=iteration)
        ReproducibilityHook().before_train_iter(runner, 0)
        return random.random(), np.random.rand(), torch.rand(()).item()

    first, other = drawn(7), drawn(8)
    assert drawn(7) == first
    assert not {*first} & {*other}
