# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Configs that make no sense are refused before anything is built."""

from contextlib import nullcontext

import pytest
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper

from mmmoca.engine.config import read_run
from mmmoca.engine.config_check import check_config
from mmmoca.registry import (
    HOOKS,
    MODELS,
    OPTIM_WRAPPERS,
    PARAM_SCHEDULERS,
    TRANSFORMS,
)

from ..helpers.builders import ARCH, build_moca
from ..helpers.errors import raises
from ..helpers.images import CONFIGS, DEMO_CONFIG

CLASSES = CONFIGS / 'classification/finetune_vit-b16_100e_own-classes.py'
SEGMENTER = 'segmentation/segmenter_moca-vit-b16_{}_cityscapes-768x768.py'
PROBE, MASK = (CONFIGS / SEGMENTER.format(h) for h in ('linear', 'mask'))


def part_of(cfg, key):
    """Return the dict that contains a dotted key, and the key's last name."""
    *path, last = key.split('.')
    for name in path:
        cfg = cfg[name]
    return cfg, last


@pytest.mark.parametrize(
    'key, value',
    [
        ('train_dataloader.batch_size', '64'),
        ('optim_wrapper.optimizer.lr', float('nan')),
        ('optim_wrapper.optimizer.lr', 1e9),
        ('optim_wrapper.optimizer.lr', [1e-3]),
        ('model.data_preprocessor.std', [64, 0, 64]),
        ('val_dataloader.dataset.pipeline', [dict(type='RandomFlip', prob=2)]),
        ('train_cfg', 3),
        ('val_dataloader.dataset.metainfo', dict(classes='shape')),
    ],
)
def test_values_that_make_no_sense(key, value):
    cfg = Config.fromfile(DEMO_CONFIG)
    part, last = part_of(cfg, key)
    part[last] = value
    with raises(ValueError, last):
        check_config(cfg)


def test_numbers_for_values_of_0_to_1():
    cfg = Config.fromfile(DEMO_CONFIG)
    part = cfg.model.data_preprocessor
    for mean, std, wrong in (
        ([0.5, 0.5, 0.5], [0.5, 0.25, 0.5], True),
        ([0.0, 0.0, 0.0], [0.5, 0.5, 0.5], True),
        ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], False),  # unchanged
        ([0.5, 0.5, 0.5], [58.0, 57.0, 57.0], False),
    ):
        part.mean, part.std = mean, std
        with raises(ValueError, '127.5') if wrong else nullcontext():
            check_config(cfg)
    part.mean, part.std = [0.5] * 3, [0.5] * 3
    load = dict(type='mmmoca.LoadBands', channels=3)
    for loader in (cfg.train_dataloader, cfg.test_dataloader):
        loader.dataset.pipeline = [load]
    check_config(cfg)  # bands may have values from 0 to 1


def test_more_classes_than_masks_can_hold():
    file = CONFIGS / 'segmentation/segmenter_vit-tiny_mask_shapes.py'
    cfg = Config.fromfile(file)
    for number in (255, 256):
        cfg.model.decode_head.num_classes = number
        with raises(ValueError, '255') if number > 255 else nullcontext():
            check_config(cfg)


def test_a_pyramid_has_the_patches_of_its_backbone():
    """Pyramids are also checked in models that our factory does not build."""
    neck = dict(type='mmmoca.ViTFeaturePyramid', in_channels=6)
    model = dict(type='RetinaNet', backbone=dict(patch_size=8))
    model['neck'] = [neck, dict(type='FPN')]
    with raises(ValueError, 'model.neck.patch_size'):
        check_config(Config(dict(model=model)))
    check_config(Config(dict(model=model | dict(detector='RetinaNet'))))
    neck['patch_size'] = 8
    check_config(Config(dict(model=model)))


ATTENTIVE = dict(in_channels=64, num_classes=5, base_lrs=[0.1])
LINEAR = dict(in_channels=12, num_classes=7, base_lrs=[0.1])
DEPTH = dict(in_channels=8)
PYRAMID = dict(in_channels=6, patch_size=14)
VIT = dict(arch=ARCH, img_size=32, patch_size=8)
CODEBOOK = dict(embed_dims=8, patch_resolution=(6, 4), num_words=8)
NECK = dict(in_channels=8, patch_resolution=(2, 2))
SCHEDULE = dict(optimizer=None, end=9)


@pytest.mark.parametrize(
    'kind, known, name, value',
    [
        ('AssignmentHead', dict(embed_dims=8, decoder_dims=8), 'kappa', 0),
        ('AttentiveHead', ATTENTIVE, 'in_channels', 96),
        ('AttentiveHead', ATTENTIVE, 'base_lrs', []),
        ('BatchedLinearHead', LINEAR, 'base_lrs', [0.1, 0.0]),
        ('BatchedLinearHead', LINEAR, 'num_classes', 1),
        ('LinearDepthHead', DEPTH, 'min_depth', 0),
        ('LinearDepthHead', DEPTH, 'num_bins', 1),
        ('TokenFeatures', {}, 'num_blocks', 0),
        ('TokenFeatures', {}, 'num_blocks', 2),
        ('ViTFeaturePyramid', PYRAMID, 'strides', (4, 8)),
        ('MOCAViT', VIT, 'num_registers', -1),
        ('MOCAViT', VIT, 'positions', 'learned'),
        ('MOCAViT', VIT, 'tap_layer', 4),
        ('MOCAViT', VIT, 'with_cls_token', False),
        ('CondenserNeck', NECK, 'depth', 0),
        ('OnlineCodebook', CODEBOOK, 'inv_delta', -30),
        ('OnlineCodebook', CODEBOOK, 'msd_momentum', 2),
        ('OnlineCodebook', CODEBOOK, 'num_words', -4),
        ('OnlineCodebook', CODEBOOK, 'num_words', 10),
        ('OnlineCodebook', CODEBOOK | dict(num_new_words=1), 'num_words', 1),
        ('OnlineCodebook', CODEBOOK, 'centre', 1.0),
        ('OnlineCodebook', CODEBOOK, 'border', 2),
        ('RandomResizedCrop', dict(scale=8), 'crop_ratio_range', (0, 0)),
        ('GaussianBlur', {}, 'magnitude_range', (2, 0.1)),
        ('RandomResizedCrop', dict(scale=8), 'aspect_ratio_range', (0, 1)),
        ('RandomResizedCrop', dict(scale=8), 'interpolation', 'area'),
        ('RandomGrayscale', {}, 'prob', 20),
        ('LoadImage', {}, 'color_type', 'colour'),
        ('LoadImage', {}, 'reduce_to', 0),
        ('LoadBands', dict(channels=3), 'channel_axis', 0),
        ('ResizeBands', dict(scale=24), 'interpolation', 'area'),
        ('BandJitter', {}, 'noise', -0.1),
        ('BandJitter', {}, 'contrast', 1.5),
        ('AtomicCheckpointHook', {}, 'out_dir', 'elsewhere'),
        ('TeacherEMAHook', {}, 'momentum', 1.1),
        ('TeacherEMAHook', {}, 'end_momentum', -0.1),
        ('WarmupCosineLR', SCHEDULE, 'warmup', 9),
        ('WarmupCosineLR', SCHEDULE, 'warmup', -1),
        ('WarmupCosineLR', SCHEDULE, 'period', 0.5),
        ('MixedPrecisionOptimWrapper', {}, 'dtype', 'bf16'),
    ],
)
def test_classes_know_their_ranges(kind, known, name, value):
    registries = MODELS, TRANSFORMS, HOOKS, OPTIM_WRAPPERS, PARAM_SCHEDULERS
    (build,) = filter(None, (r.get(f'mmmoca.{kind}') for r in registries))
    with raises(ValueError, name):
        build(**known | {name: value})


def test_keys_of_the_runner_are_no_keys_of_the_file():
    options = {'compile': True, 'resume': True, 'auto_scale_lr.enable': True}
    options |= {'sync_bn': 'torch', 'model_wrapper_cfg': dict(type='DDP')}
    assert read_run(DEMO_CONFIG, options).compile


@pytest.mark.parametrize(
    'key, slip',
    [
        ('optim_wrapper', 'optim_wrapepr'),
        ('train_cfg.max_iters', 'max_iterrs'),
        ('default_hooks.checkpoint.interval', 'intervl'),
    ],
)
def test_slips_beside_inherited_keys(key, slip):
    """Slips such as `optim_wraper` in a file with a base are found."""
    cfg = Config.fromfile(DEMO_CONFIG)
    part, last = part_of(cfg, key)
    part[slip] = part[last]
    with raises(ValueError, slip, last):
        check_config(cfg)


def test_schedules_by_epochs_of_a_loop_by_iterations():
    cfg = Config.fromfile(DEMO_CONFIG)
    cosine = dict(type='CosineAnnealingLR', T_max=9)
    for schedule in (
        dict(cfg.param_scheduler, by_epoch=True),
        [dict(type='LinearLR', end=5), cosine],
    ):
        cfg.param_scheduler = schedule
        with raises(ValueError, 'param_scheduler.by_epoch'):
            check_config(cfg)
    cfg.param_scheduler[1].by_epoch = False
    check_config(cfg)


@pytest.mark.parametrize('level', [0, 1])
@pytest.mark.parametrize(
    'place', ['bbox_head.anchor_generator.strides', 'roi_head.featmap_strides']
)
def test_strides_are_those_of_the_maps(place, level):
    """The strides of a pyramid begin with 4, unless FPN leaves levels out."""
    necks = dict(type='mmmoca.ViTFeaturePyramid'), dict(type='FPN')
    necks[1]['start_level'] = level
    cfg = Config(dict(model=dict(type='A', neck=necks)))
    for first in (4, 8):
        strides = [first * 2**n for n in range(5)]
        cfg.merge_from_dict({f'model.{place}': strides})
        if first == 4 * 2**level:
            check_config(cfg)
        else:
            with raises(ValueError, place):
                check_config(cfg)


@pytest.mark.parametrize(
    'key, value, named',
    [
        ('model.backbone.out_type', 'cls_token', 'image_embedding'),
        ('model.backbone.init_cfg', dict(type='Constant', val=1), 'Constant'),
        ('model.init_cfg', [dict(type='Xavier')], 'Xavier'),
        ('val_dataloader.sampler.type', 'InfiniteSampler', 'val_data'),
        ('val_cfg.bank_dataloader.sampler.infinite', True, 'bank_data'),
    ],
)
def test_keys_that_would_have_no_effect_or_no_end(key, value, named):
    cfg = Config.fromfile(DEMO_CONFIG)
    check_config(cfg)
    cfg.merge_from_dict({key: value})
    with raises(ValueError, named):
        check_config(cfg)


@pytest.mark.parametrize('out', ['cls_token', 'raw', 'featmap'])
def test_only_maps_are_averaged(out):
    vit = dict(type='VisionTransformer', out_type=out)
    neck = dict(type='GlobalAveragePooling')
    cfg = Config(dict(model=dict(type='A', backbone=vit, neck=neck)))
    if out == 'featmap':
        check_config(cfg)
    else:
        with raises(ValueError, 'neck=None'):
            check_config(cfg)


def test_unusual_is_not_wrong():
    parts = [
        dict(type='RandomCrop', crop_size=(0.3, 0.7)),  # of mmdet
        dict(type='VisionTransformer', arch='deit-t', drop_path_rate=0),
        dict(type='NoClassAtAll', batch_sise='3', max_norm=float('inf')),
        dict(type='AmpOptimWrapper', dtype='float16'),
        dict(view1=1, view2=2, loss_x=3, loss_y=4),
    ]
    check_config(Config(dict(default_scope='mmpretrain', parts=parts)))
    names = dict(custom_keys={'apple': 0, 'apples': 1})
    wrapper = dict(paramwise_cfg=names)
    model, models = dict(type='A'), ['A', 'B']  # a variable of the file
    check_config(
        Config(dict(model=model, models=models, optim_wrapper=wrapper))
    )


def test_defaults_of_the_optimizer():
    cfg = dict(
        constructor='mmmoca.MOCAOptimWrapperConstructor',
        optimizer=dict(type='AdamW'),
    )
    wrapper = build_optim_wrapper(build_moca(), cfg)
    rates = {group['lr'] for group in wrapper.param_groups}
    decays = {group['weight_decay'] for group in wrapper.param_groups}
    # The other values are those of the prototypes and biases.
    assert rates == {1e-3, 1e-4} and decays == {0.01, 0.05, 0}


def test_parts_with_rates_of_their_own():
    """The longest matching key counts, and its decay overrides the rules."""
    custom = {
        'backbone': dict(lr_mult=0.5),
        'neck': dict(lr_mult=0),
        'backbone.layers': dict(lr_mult=0.1, decay_mult=2),
        'generator': dict(lr_mult=3, decay_mult=0),
    }
    cfg = dict(
        constructor='mmmoca.MOCAOptimWrapperConstructor',
        optimizer=dict(type='SGD', lr=0.1, weight_decay=0.02),
        paramwise_cfg=dict(custom_keys=custom, prototype_lr=0.2),
    )
    model = build_moca()
    found = {}
    optimizer = build_optim_wrapper(model, cfg).optimizer
    for group in optimizer.param_groups:
        numbers = group['lr'], group['weight_decay'], group['constant']
        found |= {id(p): numbers for p in group['params']}
    assert len(found) == sum(p.requires_grad for p in model.parameters())
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        lr, decay, constant = found[id(parameter)]
        if name.startswith('backbone.layers'):
            assert (lr, decay, constant) == (0.1 * 0.1, 0.04, [])
        elif 'generator' in name:
            expected = 0.2 * 3, 0.0, ['lr', 'weight_decay']
            assert (lr, decay, constant) == expected
        elif name.startswith('neck'):  # no schedule changes it
            assert lr == 0 and constant[0] == 'lr'
        else:
            assert lr == (0.05 if name.startswith('backbone') else 0.1)
            assert decay == (0.02 if parameter.ndim > 1 else 0.0)


@pytest.mark.parametrize(
    'config, arch, frozen, right',
    [
        (DEMO_CONFIG, None, 5, False),
        (CLASSES, 'b', 12, True),
        (CLASSES, 'Base', 13, False),
        (PROBE, 'l', 24, True),
        (PROBE, 'l', 12, False),
        (MASK, 'l', 12, True),
        (MASK, 'l', 25, False),
    ],
)
def test_layers_that_are_frozen(config, arch, frozen, right):
    """No ViT freezes more layers than it has; a linear probe no fewer."""
    options = {'model.backbone.frozen_stages': frozen}
    if arch is not None:
        options['model.backbone.arch'] = arch
    with nullcontext() if right else raises(ValueError, 'layers of the ViT'):
        read_run(config, options)
