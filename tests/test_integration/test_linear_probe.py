# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Linear probing on real digits through the real config and Runner."""

import numpy as np
import pytest
from mmengine.runner import Runner

from ..helpers.digits import (
    digits_config,
    save_pretraining,
    train,
    write_digits,
)
from ..helpers.runs import assert_same, scalars

CONFIG = 'linear_vit-b16_100e_in1k.py'


@pytest.mark.slow
def test_accuracy_far_above_chance(tmp_path):
    digits = write_digits(tmp_path / 'digits', 500)
    teacher = save_pretraining(digits / 'moca.pth')
    file = str(digits / 'moca.pth')
    init = dict(type='Pretrained', checkpoint=file, prefix='teacher.')
    options = {
        'model.backbone.init_cfg': init,
        'train_cfg.max_epochs': 3,
        'train_dataloader.batch_size': 25,
    }
    probe = train(digits_config(CONFIG, digits, tmp_path / 'probe', **options))
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
    options['load_from'] = f'{tmp_path}/probe/epoch_3.pth'
    cfg = digits_config(CONFIG, digits, tmp_path / 'tested', **options)
    assert Runner.from_cfg(cfg).test()['linear/top1'] == top1[-1]
