# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The evaluation recipes have the paper's numbers; see also test_configs."""

import math

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import OptimWrapper
from mmengine.registry import PARAM_SCHEDULERS

from ..helpers.images import CONFIGS


def load(name):
    return Config.fromfile(CONFIGS / 'classification' / f'{name}_in1k.py')


def test_frozen_features():
    """Each recipe uses full precision, as the loop does by default."""
    knn, lowshot = load('knn_vit-l16'), load('lowshot_vit-b16')
    for cfg, interpolation in ((knn, 'bicubic'), (lowshot, 'bilinear')):
        assert 'checkpoint_fit' in cfg.default_hooks
        resize = cfg.test_dataloader.dataset.pipeline[1]
        assert resize.scale == 256 and resize.backend == 'pillow'
        assert resize.interpolation == interpolation
        assert 'fp16' not in cfg.test_cfg
    assert not lowshot.model.backbone.final_norm
    assert lowshot.test_cfg.regularization == 0.1
    sets = [len(s) for s in lowshot.test_cfg.subsets.values()]
    assert sets == [3, 3, 3, 1]
    assert knn.test_cfg.k == (10, 20)
    # from the authors' eval_knn.py
    temperatures = [3, 4, 5, 6, 7, 8, 10, 12, 15, 20]
    found = [100 * t for t in knn.test_cfg.temperature]
    assert found == pytest.approx(temperatures)


@pytest.mark.parametrize(
    ('name', 'rate', 'drop_path'),
    [('vit-b16_100e', 0.65, 0.2), ('vit-l16_50e', 0.75, 0.4)],
)
def test_fine_tuning(name, rate, drop_path):
    cfg = load(f'finetune_{name}')
    assert f'_{cfg.train_cfg.max_epochs}e' in name
    assert not cfg.model.backbone.final_norm
    assert cfg.model.backbone.drop_path_rate == drop_path
    assert cfg.model.head.loss.label_smooth_val == 0.1
    assert cfg.optim_wrapper.optimizer.lr == 4e-3
    assert cfg.optim_wrapper.paramwise_cfg.layer_decay_rate == rate
    augments = {a.type: a.alpha for a in cfg.model.train_cfg.augments}
    assert augments == dict(Mixup=0.8, CutMix=1.0)
    pipeline = {t.type: t for t in cfg.train_dataloader.dataset.pipeline}
    assert pipeline['RandAugment'].magnitude_level == 9
    assert pipeline['RandAugment'].magnitude_std == 0.5
    assert pipeline['RandomErasing'].erase_prob == 0.25
    assert cfg.train_dataloader.batch_size * 8 == 1024


@pytest.mark.filterwarnings('ignore:Detected call of `scheduler.step')
def test_schedule():
    """The schedule is that of the authors' code in each step."""
    optimizer = torch.optim.AdamW(torch.nn.Linear(1, 1).parameters(), 4e-3)
    run = dict(end=100, optimizer=OptimWrapper(optimizer), epoch_length=10)
    schedule = load('finetune_vit-b16_100e').param_scheduler
    scheduler = PARAM_SCHEDULERS.build(run | schedule)
    for iteration in range(1000):
        epoch = iteration / 10
        cosine = 0.5 * (1 + math.cos(math.pi * (epoch - 5) / 95))
        lr, rel = 1e-6 + (4e-3 - 1e-6) * cosine, 2e-3
        if epoch < 5:
            # Our warm-up ends one step earlier, as MMEngine's does.
            lr, rel = 4e-3 * epoch / 5, 0.03
        found = optimizer.param_groups[0]['lr']
        assert found == pytest.approx(lr, rel=rel, abs=1e-11)
        scheduler.step()
