# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Linear and attentive probing of real digits with the real configs."""

import numpy as np
import pytest
from mmengine.runner import Runner

from mmmoca.engine.config import read_run

from ..helpers.digits import (
    ARCH,
    digits_config,
    save_pretraining,
    train,
    write_digits,
)
from ..helpers.images import CONFIGS
from ..helpers.runs import assert_same, scalars

LINEAR = 'linear_vit-b16_100e_in1k.py'
ATTENTIVE = 'classification/attentive_vit-b16_own-classes.py'


@pytest.mark.slow
def test_linear_probe(tmp_path):
    digits = write_digits(tmp_path / 'digits', 500)
    teacher = save_pretraining(digits / 'moca.pth')
    file = str(digits / 'moca.pth')
    init = dict(type='Pretrained', checkpoint=file, prefix='teacher.')
    options = {
        'model.backbone.init_cfg': init,
        'train_cfg.max_epochs': 3,
        'train_dataloader.batch_size': 25,
    }
    probe = train(digits_config(LINEAR, digits, tmp_path / 'probe', **options))
    top1 = scalars(probe, 'val/linear/top1')
    assert len(top1) == 3
    assert top1[-1] > 40  # chance is 10
    assert scalars(probe, 'val/linear/top5')[-1] > 80
    entropy = scalars(probe, 'train/best_cross_entropy')
    assert entropy[-5:].mean() < 0.8 * entropy[:5].mean()
    assert np.array_equal(scalars(probe, 'train/loss'), entropy)
    # Loaded weights are kept when the model is initialised.
    assert_same(probe.model.backbone.state_dict(), teacher.state_dict())
    # A checkpoint of the probe is tested as it is.
    options['load_from'] = f'{tmp_path}/probe/epoch_3.pth'
    cfg = digits_config(LINEAR, digits, tmp_path / 'tested', **options)
    assert Runner.from_cfg(cfg).test()['linear/top1'] == top1[-1]


@pytest.mark.slow
def test_attentive_probe_of_own_classes(tmp_path):
    root = write_digits(tmp_path / 'digits', 300)
    save_pretraining(tmp_path / 'moca.pth')
    cfg = read_run(
        CONFIGS / ATTENTIVE,
        work_dir=str(tmp_path / 'work'),
        options=dict(
            data_root=str(root),
            img_size=32,
            steps=60,
            batch_size=32,
            arch=dict(ARCH, _delete_=True),
            load_from=str(tmp_path / 'moca.pth'),
            log_level='WARNING',
            **{
                'model.backbone.patch_size': 16,
                'train_cfg.val_interval': 30,
                'train_dataloader.num_workers': 0,
                'val_dataloader.num_workers': 0,
            },
        ),
    )
    assert cfg.model.head.num_classes == 10
    runner = Runner.from_cfg(cfg)
    train, val = runner.train_dataloader.dataset, runner.val_dataloader.dataset
    held_out, judged = val.datasets
    assert (len(train), len(held_out)) == (203, 22)
    paths = [
        {part.get_data_info(i)['img_path'] for i in range(len(part))}
        for part in (train, held_out, judged)
    ]
    assert not set.intersection(*paths) and not paths[0] & paths[1]
    runner.train()
    groups = runner.optim_wrapper.optimizer.param_groups
    found = {(g['initial_lr'] / 4, g['weight_decay']) for g in groups}
    assert len(found) == 40  # 30 settings of weights, and 10 of biases
    assert scalars(runner, 'val/linear/top1')[-1] > 30  # chance is 10
