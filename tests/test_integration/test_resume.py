# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A run that was stopped and resumed ends like one that was not."""

import shutil

import pytest
import torch

from mmmoca.checkpoints import read_checkpoint

from ..helpers.digits import (
    digits_config,
    save_pretraining,
    train,
    write_digits,
)
from ..helpers.distributed import run_processes
from ..helpers.runs import (
    assert_same,
    by_epochs,
    demo_runner,
    scalars,
    state_of,
)
from ..helpers.stores import write_arrow, write_shards

pytestmark = pytest.mark.slow
# With 16 images a step, an epoch has three steps.
ITERATIONS, EPOCHS = {'train_cfg.max_iters': 5}, by_epochs(2)
WORKERS, SEED = 'train_dataloader.num_workers', 'randomness.seed'


def end(root, name, options, batch_size=16):
    """Return state, schedules and k-NN accuracy at the end of a demo run."""
    settings = {
        'train_dataloader.batch_size': batch_size,
        'train_cfg.val_interval': 4,
        'model.codebook.centre': 0.9,
        'default_hooks.checkpoint.interval': 2,
        'default_hooks.checkpoint.max_keep_ckpts': -1,
    }
    runner = demo_runner(root, name, **settings | options)
    runner.train()
    schedules = [schedule.state_dict() for schedule in runner.param_schedulers]
    names = [n for n in runner.message_hub.log_scalars if 'knn' in n]
    accuracies = {name: scalars(runner, name)[-1] for name in names}
    return runner.iter, state_of(runner), schedules, accuracies


def resume(root, run, file='iter_2'):
    """Return options of a run that resumes from another one's checkpoint."""
    return dict(resume=True, load_from=f'{root}/{run}/{file}.pth')


def assert_same_end(first, second):
    assert first[0] == second[0] and first[2:] == second[2:]
    assert_same(first[1], second[1])


@pytest.fixture(scope='module')
def whole(root):
    """Return the end of an uninterrupted run by iterations."""
    return end(root, 'whole', ITERATIONS)


def test_resumed_on_other_workers_with_another_seed(root, whole):
    """The checkpoint's seed is used; test_two_ranks gives no seed at all."""
    options = ITERATIONS | {WORKERS: 2, SEED: 7} | resume(root, 'whole')
    assert_same_end(end(root, 'other_seed', options), whole)


def test_resumed_after_an_epoch_within_a_step(root):
    """An epoch ends within a step: the run is saved two iterations later.

    A step has four iterations, and an epoch six. The encoder has registers
    and rotary positions.
    """
    options = by_epochs(2) | {
        'model.backbone.type': 'mmmoca.DINOv3ViT',
        'optim_wrapper.accumulative_counts': 4,
        'default_hooks.checkpoint.by_epoch': True,
        'default_hooks.checkpoint.interval': 1,
        'train_cfg.val_interval': 1,
    }
    whole = end(root, 'accumulated', options, batch_size=8)
    options |= resume(root, 'accumulated', 'epoch_1')
    saved = read_checkpoint(options['load_from'])
    assert saved['meta']['iter'] == 8
    assert 'teacher.rotary_periods' in saved['state_dict']
    assert_same_end(end(root, 'accumulated_on', options, 8), whole)


@pytest.mark.parametrize(
    'kind, write', [('ImageShards', write_shards), ('HFImages', write_arrow)]
)
def test_resumed_from_another_store(root, whole, kind, write):
    """A run on a folder continues, within the epoch, on its shards."""
    pytest.importorskip('webdataset')
    pytest.importorskip('datasets')
    for split in ('train', 'val'):
        write(root / split, root / kind / split)
    options = ITERATIONS | resume(root, 'whole')
    loaders = 'train_dataloader', 'val_dataloader', 'val_cfg.bank_dataloader'
    for loader in loaders:
        options[f'{loader}.dataset.type'] = f'mmmoca.{kind}'
        options[f'{loader}.dataset.data_root'] = f'{root}/{kind}'
    resumed = end(root, f'of_{kind}', options)
    assert 'val/knn/top1_k20' in resumed[-1]
    assert_same_end(resumed, whole)


def stop_and_resume(root):
    """Return a rank's state at the end of a whole run and of a resumed one."""
    whole = end(root, 'ranks', EPOCHS, batch_size=8)
    options = EPOCHS | resume(root, 'ranks') | {SEED: None}
    return whole, end(root, 'ranks_resumed', options, batch_size=8)


@pytest.mark.processes
def test_two_ranks(root):
    """Both ranks have the same state, and one rank with 16 images may resume.

    On one rank, the order of the images and the schedules stay the same, but
    the masks do not.
    """
    (whole, resumed), (other, other_resumed) = run_processes(
        stop_and_resume, 2, root
    )
    assert whole[1]['codebook.token_mean'].any()
    assert_same(whole[1], other[1])
    assert_same_end(resumed, whole)
    assert_same_end(other_resumed, other)
    alone = end(root, 'one_rank', EPOCHS | resume(root, 'ranks'))
    assert alone[0] == whole[0] == 6 and alone[2] == whole[2]
    pointer = 'codebook.pointer'
    assert torch.equal(alone[1][pointer], whole[1][pointer])


def test_fine_tuning(tmp_path):
    """Mixup, CutMix, drop path and augmentation resume from a folder alone."""
    name = 'finetune_vit-b16_100e_in1k.py'
    root = write_digits(tmp_path / 'digits', 100)
    save_pretraining(root / 'moca.pth')
    options = {
        'load_from': str(root / 'moca.pth'),
        'train_dataloader.batch_size': 25,
        'default_hooks.checkpoint.max_keep_ckpts': -1,
    }
    whole = train(digits_config(name, root, tmp_path / 'whole', **options))
    (tmp_path / 'resumed').mkdir()
    shutil.copy(tmp_path / 'whole' / 'epoch_1.pth', tmp_path / 'resumed')
    options |= {'resume': True, 'load_from': None, WORKERS: 2}
    resumed = train(digits_config(name, root, tmp_path / 'resumed', **options))
    assert resumed.iter == whole.iter == 6
    assert_same(state_of(resumed), state_of(whole))
