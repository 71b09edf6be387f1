# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Fine-tuning: the recipe's numbers, and runs on real digits."""

import math
import shutil

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import OptimWrapper, build_optim_wrapper
from mmengine.registry import MODELS, PARAM_SCHEDULERS, init_default_scope
from mmengine.runner import Runner

from ..digits import (
    digits_config,
    inferencer_top1,
    save_pretraining,
    train,
    write_digits,
)
from ..images import CONFIGS
from ..runs import assert_same, scalars, state_of

CONFIG = 'finetune_vit-b16_100e_in1k.py'


@pytest.fixture(scope='module')
def recipe():
    cfg = Config.fromfile(CONFIGS / 'classification' / CONFIG)
    init_default_scope(cfg.default_scope)
    return cfg


@pytest.fixture(scope='module')
def optimizer(recipe):
    with torch.device('meta'):
        model = MODELS.build(recipe.model)
    return build_optim_wrapper(model, recipe.optim_wrapper).optimizer


def exponent(name):
    """How often the decay of 0.65 applies to a parameter of ViT-B."""
    if name.startswith('backbone.layers.'):
        return 12 - int(name.split('.')[2])
    if name.startswith(('backbone.ln2.', 'head.')):
        return 0
    assert name.split('.')[1] in ('cls_token', 'pos_embed', 'patch_embed')
    return 13


def test_layer_decay(optimizer):
    assert len(optimizer.param_groups) == 4 + 12 * 12 + 2 + 2
    for group in optimizer.param_groups:
        name, (parameter,) = group['param_name'], group['params']
        lr = 4e-3 * 0.65 ** exponent(name)
        assert group['lr'] == pytest.approx(lr, rel=1e-9), name
        decays = parameter.ndim > 1 and not name.endswith(
            ('cls_token', 'pos_embed')
        )
        assert group['weight_decay'] == (0.05 if decays else 0.0), name
    assert {0, 1, 12, 13} <= {
        exponent(group['param_name']) for group in optimizer.param_groups
    }


@pytest.mark.filterwarnings('ignore:Detected call of `scheduler.step')
def test_schedule(recipe, optimizer):
    """Of the authors' code, in each step and for each layer."""
    steps = 10
    scheduler = PARAM_SCHEDULERS.build(
        dict(end=100, optimizer=OptimWrapper(optimizer), epoch_length=steps)
        | recipe.param_scheduler
    )
    groups = {
        exponent(group['param_name']): group
        for group in optimizer.param_groups
    }
    for iteration in range(100 * steps):
        epoch = iteration / steps
        if epoch < 5:
            lr = 4e-3 * epoch / 5
        else:
            cosine = 0.5 * (1 + math.cos(math.pi * (epoch - 5) / 95))
            lr = 1e-6 + (4e-3 - 1e-6) * cosine
        # Our warm-up, as MMEngine's, gets to its end one step earlier.
        rel = 0.03 if epoch < 5 else 2e-3
        for times, group in groups.items():
            wanted = lr * 0.65**times
            assert group['lr'] == pytest.approx(wanted, rel=rel, abs=1e-11)
        scheduler.step()


def test_recipe_of_the_paper(recipe):
    backbone = recipe.model.backbone
    assert (backbone.drop_path_rate, backbone.final_norm) == (0.2, False)
    assert recipe.model.head.loss.label_smooth_val == 0.1
    augments = {a.type: a.alpha for a in recipe.model.train_cfg.augments}
    assert augments == dict(Mixup=0.8, CutMix=1.0)
    pipeline = {t.type: t for t in recipe.train_dataloader.dataset.pipeline}
    assert pipeline['RandAugment'].magnitude_level == 9
    assert pipeline['RandAugment'].magnitude_std == 0.5
    assert pipeline['RandomErasing'].erase_prob == 0.25
    assert recipe.train_dataloader.batch_size * 8 == 1024
    assert recipe.train_cfg.max_epochs == 100
    with torch.device('meta'):
        rates = [
            layer.attn.out_drop.drop_prob
            for layer in MODELS.build(recipe.model).backbone.layers
        ]
    assert rates == pytest.approx([0.2 * i / 11 for i in range(12)])


def test_recipe_of_vit_l(recipe):
    """What iBOT's has of its own; the rest is ViT-B's."""
    path = CONFIGS / 'classification' / 'finetune_vit-l16_50e_in1k.py'
    cfg = Config.fromfile(path)
    assert cfg.train_cfg.max_epochs == 50
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
        logits = model(torch.empty(2, 3, 224, 224))
    assert logits.shape == (2, 1000)
    rates = [layer.attn.out_drop.drop_prob for layer in model.backbone.layers]
    assert rates == pytest.approx([0.4 * i / 23 for i in range(24)])
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper).optimizer
    found = {g['param_name']: g['lr'] for g in optimizer.param_groups}
    assert found['head.fc.weight'] == pytest.approx(4e-3)
    assert found['backbone.layers.23.ln1.bias'] == pytest.approx(4e-3 * 0.75)
    assert found['backbone.cls_token'] == pytest.approx(4e-3 * 0.75**25)
    for key in ('param_scheduler', 'train_dataloader', 'auto_scale_lr'):
        assert cfg[key] == recipe[key]


@pytest.fixture(scope='module')
def digits(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp('finetune') / 'digits', 600)


@pytest.fixture(scope='module')
def teacher(digits):
    return save_pretraining(digits / 'moca.pth')


def config(digits, work_dir, **options):
    settings = {
        'load_from': str(digits / 'moca.pth'),
        'auto_scale_lr.enable': False,
        'optim_wrapper.optimizer.lr': 0.01,
    }
    return digits_config(CONFIG, digits, work_dir, **settings | options)


@pytest.mark.slow
def test_digits(digits, teacher, tmp_path):
    """Far above chance; what was loaded is said; others load the result."""
    options = {
        'train_cfg.max_epochs': 8,
        'train_cfg.val_interval': 4,
        'default_hooks.checkpoint.interval': 8,
    }
    runner = train(config(digits, tmp_path, **options))
    top1 = scalars(runner, 'val/accuracy/top1')
    assert len(top1) == 2 and top1.max() > 35  # chance is 10
    log = next(tmp_path.glob('*/*.log')).read_text()
    assert '28 of its 32 names match' in log
    assert '4 missing (backbone.ln2.bias' in log
    best = next(tmp_path.glob('best_accuracy_top1_epoch_*.pth'))
    cfg = runner.cfg
    cfg.update(
        work_dir=str(tmp_path / 'test'),
        load_from=str(best),
        experiment_name=f'test_{tmp_path.name}',
    )
    metrics = Runner.from_cfg(cfg).test()
    assert metrics['accuracy/top1'] == pytest.approx(top1.max())
    by_inferencer = inferencer_top1(cfg, best, digits)
    assert by_inferencer == pytest.approx(top1.max())


def test_resumed_run_is_the_same(digits, teacher, tmp_path):
    """Mixup, cutmix, drop path and augmentation, from a folder alone."""
    options = {
        'train_dataloader.dataset.indices': 150,
        'train_dataloader.num_workers': 2,
        'default_hooks.checkpoint.max_keep_ckpts': -1,
    }
    whole = train(config(digits, tmp_path / 'whole', **options))
    (tmp_path / 'resumed').mkdir()
    shutil.copy(tmp_path / 'whole' / 'epoch_1.pth', tmp_path / 'resumed')
    options |= {'resume': True, 'load_from': None}
    resumed = train(config(digits, tmp_path / 'resumed', **options))
    assert resumed.iter == whole.iter == 6
    assert_same(state_of(resumed), state_of(whole))
