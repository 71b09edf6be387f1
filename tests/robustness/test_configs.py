# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Configs that make no sense are refused before anything is built."""

import pytest

from mmmoca.engine.launch import load_config

from ..images import DEMO_CONFIG


@pytest.mark.parametrize(
    'key, value',
    [
        ('train_dataloader.batch_size', 0),
        ('train_dataloader.batch_size', '64'),
        ('train_dataloader.num_workers', -1),
        ('train_cfg.max_iters', 0),
        ('train_cfg.max_iters', -5),
        ('optim_wrapper.accumulative_counts', 1.5),
        ('optim_wrapper.optimizer.lr', -1e-3),
        ('optim_wrapper.optimizer.lr', float('nan')),
        ('optim_wrapper.clip_grad.max_norm', 0),
        ('optim_wrapper.paramwise_cfg.prototype_lr', -1),
        ('model.head.kappa', 0),
        ('model.head.kappa', True),
        ('model.neck.depth', 0),
        ('model.codebook.num_words', -4),
        ('model.backbone.img_size', (48, 0)),
        ('view_pipeline1.0.crop_ratio_range', (0, 0)),
        ('view_pipeline1.2.magnitude_range', (2, 0.1)),
        ('view_pipeline1.3.prob', 1.5),
    ],
)
def test_numbers_that_make_no_sense(key, value):
    last = key.rpartition('.')[2]
    with pytest.raises(ValueError, match=rf'{last}=.*: must be '):
        load_config(DEMO_CONFIG, cfg_options={key: value})


def test_keys_that_nothing_reads():
    with pytest.raises(ValueError, match='no key modle.*did you mean model'):
        load_config(DEMO_CONFIG, cfg_options={'modle.head.kappa': 4})
    # These are no keys of the file, but the runner's.
    options = {'compile': True, 'resume': True, 'auto_scale_lr.enable': True}
    assert load_config(DEMO_CONFIG, cfg_options=options).compile
