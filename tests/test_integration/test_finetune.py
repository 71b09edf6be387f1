# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Fine-tuning: the numbers of the recipes. Runs are in test_resume."""

import math

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import OptimWrapper, build_optim_wrapper
from mmengine.registry import MODELS, PARAM_SCHEDULERS, init_default_scope

from ..helpers.images import CONFIGS

CONFIG = 'finetune_vit-b16_100e_in1k.py'


def load(name):
    cfg = Config.fromfile(CONFIGS / 'classification' / name)
    init_default_scope(cfg.default_scope)
    return cfg


@pytest.mark.parametrize(
    ('name', 'rate', 'depth', 'drop_path'),
    [('vit-b16_100e', 0.65, 12, 0.2), ('vit-l16_50e', 0.75, 24, 0.4)],
)
def test_what_recipes_have_of_their_own(name, rate, depth, drop_path):
    cfg = load(f'finetune_{name}_in1k.py')
    assert f'_{cfg.train_cfg.max_epochs}e' in name
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    drops = [layer.attn.out_drop.drop_prob for layer in model.backbone.layers]
    assert drops == pytest.approx(
        [drop_path * i / (depth - 1) for i in range(depth)]
    )
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper).optimizer
    found = {
        group['param_name']: (group['lr'], group['weight_decay'])
        for group in optimizer.param_groups
    }
    for name, power, decay in (
        ('head.fc.weight', 0, 0.05),
        (f'backbone.layers.{depth - 1}.ln1.bias', 1, 0),
        ('backbone.layers.0.attn.qkv.weight', depth, 0.05),
        ('backbone.pos_embed', depth + 1, 0),
    ):
        lr = 4e-3 * rate**power
        assert found[name] == (pytest.approx(lr, rel=1e-9), decay), name


@pytest.mark.filterwarnings('ignore:Detected call of `scheduler.step')
def test_schedule():
    """Of the authors' code, in each step."""
    optimizer = torch.optim.AdamW(torch.nn.Linear(1, 1).parameters(), 4e-3)
    defaults = dict(
        end=100, optimizer=OptimWrapper(optimizer), epoch_length=10
    )
    scheduler = PARAM_SCHEDULERS.build(defaults | load(CONFIG).param_scheduler)
    for iteration in range(1000):
        epoch = iteration / 10
        cosine = 0.5 * (1 + math.cos(math.pi * (epoch - 5) / 95))
        lr, rel = 1e-6 + (4e-3 - 1e-6) * cosine, 2e-3
        if epoch < 5:
            # Our warm-up, as MMEngine's, gets to its end one step earlier.
            lr, rel = 4e-3 * epoch / 5, 0.03
        found = optimizer.param_groups[0]['lr']
        assert found == pytest.approx(lr, rel=rel, abs=1e-11)
        scheduler.step()


def test_recipe_of_the_paper():
    recipe = load(CONFIG)
    assert not recipe.model.backbone.final_norm
    assert recipe.model.head.loss.label_smooth_val == 0.1
    augments = {a.type: a.alpha for a in recipe.model.train_cfg.augments}
    assert augments == dict(Mixup=0.8, CutMix=1.0)
    pipeline = {t.type: t for t in recipe.train_dataloader.dataset.pipeline}
    assert pipeline['RandAugment'].magnitude_level == 9
    assert pipeline['RandAugment'].magnitude_std == 0.5
    assert pipeline['RandomErasing'].erase_prob == 0.25
    assert recipe.train_dataloader.batch_size * 8 == 1024
