# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Configs that make no sense are refused before anything is built."""

import pytest
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper

from mmmoca.engine.config_check import check_config
from mmmoca.engine.launch import load_config

from ..builders import build_moca
from ..images import CONFIGS, DEMO_CONFIG
from ..runs import demo_runner

FINETUNE = CONFIGS / 'demo' / 'finetune_vit-tiny_textures.py'


def part_of(cfg, key):
    """The dict that has a dotted key, and the key's last name."""
    *path, last = key.split('.')
    for name in path:
        cfg = cfg[name]
    return cfg, last


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
        ('optim_wrapper.optimizer.lr', 1e9),
        ('default_hooks.checkpoint.interval', 0),
        ('model.data_preprocessor.std', [64, 0, 64]),
        ('optim_wrapper.clip_grad.max_norm', 0),
        ('optim_wrapper.paramwise_cfg.prototype_lr', -1),
        ('model.head.kappa', 0),
        ('val_cfg.k', 20.0),
        ('optim_wrapper.optimizer.lr', [1e-3]),
        ('model.head.type', ['AssignmentHead']),
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


@pytest.mark.parametrize(
    'key, value, wanted',
    [
        # What a signature says, a docstring of ours alone, and a default.
        ('model.codebook.border', '3x', 'a number'),
        ('model.codebook.border', [1], 'a number'),
        ('model.codebook.border', None, 'a number'),
        ('model.codebook.border', float('nan'), 'a number'),
        ('model.neck.depth', {}, 'a number'),
        ('model.data_preprocessor.mean', [1, 2, [3]], 'values of pixels'),
        ('val_dataloader.drop_last', 'yes', 'True or False'),
        ('val_dataloader.sampler.shuffle', 'no', 'True or False'),
        ('optim_wrapper.clip_grad.norm_type', {}, 'a number'),
        ('val_dataloader.collate_fn.type', 'default_collat', 'registered'),
        ('model.backbone.arch.num_heads', None, 'whole numbers'),
        ('default_hooks.teacher_ema.momentum', '0.9', 'between 0 and 1'),
    ],
)
def test_values_of_another_kind(key, value, wanted):
    cfg = Config.fromfile(DEMO_CONFIG)
    part, last = part_of(cfg, key)
    part[last] = value
    with pytest.raises(ValueError, match=rf'{key}=.*: must be .*{wanted}'):
        check_config(cfg)


@pytest.mark.parametrize(
    'key, meant',
    [
        ('model.head.kapa', 'kappa'),
        ('model.backbone.patchsize', 'patch_size'),
        ('train_dataloader.btach_size', 'batch_size'),
        ('default_hooks.checkpoint.intervall', 'interval'),
        ('val_dataloader.sampler.typ', 'type'),
    ],
)
def test_keys_with_a_slip(key, meant):
    cfg = Config.fromfile(DEMO_CONFIG)
    part, last = part_of(cfg, key)
    part[last] = part.pop(meant, 4)
    message = f'{key}: there is no such key: did you mean {meant}'
    with pytest.raises(ValueError, match=message):
        check_config(cfg)


def test_keys_of_a_file_with_a_slip():
    cfg = Config.fromfile(DEMO_CONFIG)
    # Variables may have any name: this one is used.
    cfg.max_iter = cfg.train_cfg.max_iters
    check_config(cfg)
    cfg.max_itres = 100
    cfg.custom_hook = []
    with pytest.raises(ValueError, match='custom_hooks.*max_iters'):
        check_config(cfg)


def test_schedules_by_epochs_of_a_loop_by_iterations():
    cfg = Config.fromfile(DEMO_CONFIG)
    message = r'param_scheduler.*\.by_epoch: must be False for'
    for schedule in (
        dict(cfg.param_scheduler, by_epoch=True),
        [
            dict(type='LinearLR', end=5),
            dict(type='CosineAnnealingLR', T_max=9),
        ],
    ):
        cfg.param_scheduler = schedule
        with pytest.raises(ValueError, match=message):
            check_config(cfg)
    cfg.param_scheduler[1].by_epoch = False
    check_config(cfg)


def test_shifts_of_hue():
    for hue, holds in ((0.5, True), ((-0.1, 0.1), True), (0.6, False)):
        cfg = Config(dict(pipeline=[dict(type='mmmoca.ColorJitter', hue=hue)]))
        if holds:
            check_config(cfg)
        else:
            with pytest.raises(ValueError, match=r'hue=0\.6: must be from'):
                check_config(cfg)


def test_what_is_missing():
    cfg = Config.fromfile(DEMO_CONFIG)
    del cfg.train_dataloader.dataset.pipeline[0]
    with pytest.raises(ValueError, match='begin with .*SeedTransforms'):
        check_config(cfg)
    cfg.train_dataloader.sampler.type = 'InfiniteSampler'
    check_config(cfg)
    preprocessor = cfg.model.pop('data_preprocessor')
    with pytest.raises(ValueError, match='data_preprocessor: must be there'):
        check_config(cfg)
    cfg.data_preprocessor = preprocessor
    check_config(cfg)
    del cfg.val_dataloader.dataset
    with pytest.raises(ValueError, match='val_dataloader.dataset: must be'):
        check_config(cfg)


def test_the_best_by_what_is_not_measured():
    cfg = Config.fromfile(DEMO_CONFIG)
    cfg.default_hooks.checkpoint.save_best = 'knn/top1_k20'
    check_config(cfg)
    cfg.val_cfg.k = (5, 10)
    with pytest.raises(ValueError, match='save_best=knn/top1_k20: .*top1_k5'):
        check_config(cfg)


def test_patches_that_would_be_cut_off():
    options = {'model.backbone.patch_size': 7}
    with pytest.raises(ValueError, match='patch_size=7: must divide img_size'):
        load_config(FINETUNE, cfg_options=options)


@pytest.mark.parametrize(
    'part',
    [
        dict(type='Resize', scale=(224, -1)),
        dict(type='RandomResizedCrop', scale=(0.2, 1.0)),
        dict(type='VisionTransformer', arch='deit-t', drop_path_rate=0),
        dict(type='SGD', lr=0, momentum=0.9),
        dict(type='SyncBN', requires_grad=True),
        dict(type='NoClassAtAll', batch_sise='3'),
    ],
)
def test_unusual_is_not_wrong(part):
    check_config(Config(dict(default_scope='mmpretrain', part=part)))


def test_defaults_of_the_optimizer():
    cfg = dict(
        constructor='mmmoca.MOCAOptimWrapperConstructor',
        optimizer=dict(type='AdamW'),
    )
    wrapper = build_optim_wrapper(build_moca(), cfg)
    rates = {group['lr'] for group in wrapper.param_groups}
    decays = {group['weight_decay'] for group in wrapper.param_groups}
    # The others are of prototypes and of biases.
    assert rates == {1e-3, 1e-4} and decays == {0.01, 0.05, 0}


def test_runners_of_others(root):
    """``mim train`` builds the runner before the first hook is called."""
    runner = demo_runner(root, 'others', **{'model.head.kappa': -3})
    with pytest.raises(ValueError, match='model.head.kappa=-3: must be above'):
        runner.train()
    assert runner.iter == 0
