# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Attentive probing of digits through the config of own classes."""

import numpy as np
from mmengine.runner import Runner

from mmmoca.engine.config import load_config

from ..helpers.digits import ARCH, save_pretraining, write_digits
from ..helpers.images import CONFIGS
from ..helpers.runs import scalars

NAME = 'classification/attentive_vit-b16_own-classes.py'


def test_own_classes(tmp_path):
    root = write_digits(tmp_path / 'digits', 300)
    save_pretraining(tmp_path / 'moca.pth')
    cfg = load_config(
        CONFIGS / NAME,
        str(tmp_path / 'work'),
        dict(
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
    assert len(found) == 40  # 30 of weights, and 10 rates of biases
    top1 = scalars(runner, 'val/linear/top1')
    assert top1[-1] > 30  # chance is 10
    assert np.isclose(
        scalars(runner, 'val/linear/base_lr')[-1],
        runner.model.head.base_lrs[
            int(scalars(runner, 'val/linear/head')[-1])
        ],
    )
