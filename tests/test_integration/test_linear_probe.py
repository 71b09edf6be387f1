# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Linear probing on real digits through the real config and Runner."""

import numpy as np
import pytest
import torch
from mmengine.dist import get_world_size
from mmengine.runner import Runner

from ..helpers.digits import (
    digits_config,
    save_pretraining,
    train,
    write_digits,
)
from ..helpers.distributed import run_processes
from ..helpers.runs import DDP, assert_same, scalars

CONFIG = 'linear_vit-b16_100e_in1k.py'


@pytest.fixture(scope='module')
def digits(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp('linear') / 'digits', 500)


@pytest.fixture(scope='module')
def teacher(digits):
    return save_pretraining(digits / 'moca.pth')


def config(digits, work_dir, **options):
    checkpoint = {'load_from': str(digits / 'moca.pth')}
    return digits_config(CONFIG, digits, work_dir, **checkpoint | options)


@pytest.fixture(scope='module')
def probe(digits, teacher):
    options = {'train_cfg.max_epochs': 3, 'train_dataloader.batch_size': 25}
    return train(config(digits, digits / 'probe', **options))


@pytest.mark.slow
def test_accuracy_far_above_chance(probe, teacher, digits):
    top1 = scalars(probe, 'val/linear/top1')
    assert len(top1) == 3
    assert top1[-1] > 40  # chance is 10
    assert scalars(probe, 'val/linear/top5')[-1] > 80
    entropy = scalars(probe, 'train/best_cross_entropy')
    assert entropy[-5:].mean() < 0.8 * entropy[:5].mean()
    assert np.array_equal(scalars(probe, 'train/loss'), entropy)
    # What was loaded outlives the initialisation of the model.
    assert_same(probe.model.backbone.state_dict(), teacher.state_dict())
    # A checkpoint of the probe is tested as it is.
    options = {'load_from': f'{digits}/probe/epoch_3.pth'}
    cfg = config(digits, digits / 'tested', **options)
    assert Runner.from_cfg(cfg).test()['linear/top1'] == top1[-1]


def run_rank(digits, name):
    ranks = get_world_size()
    options = {
        'train_dataloader.dataset.indices': 100,
        'train_dataloader.batch_size': 50 // ranks,
        'train_cfg.max_epochs': 1,
        # The same for both: MMEngine knows the ranks' batches only.
        'auto_scale_lr.enable': False,
        'optim_wrapper.optimizer.lr': 50 / 256,
    }
    if ranks > 1:
        options |= DDP
    runner = train(config(digits, digits / name, **options))
    model = getattr(runner.model, 'module', runner.model)
    return model.head.weight.detach(), scalars(runner, 'val/linear/top1')[-1]


@pytest.mark.processes
def test_two_ranks_train_as_one(digits, teacher):
    alone = run_rank(digits, 'alone')
    first, second = run_processes(run_rank, 2, digits, 'both')
    assert torch.equal(first[0], second[0])
    torch.testing.assert_close(first[0], alone[0], rtol=1e-4, atol=1e-5)
    assert first[1] == second[1] == alone[1]
    assert (digits / 'both' / 'linear_best.pth').exists()
