# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Errors of configs, recipes, hooks and loops name what is wrong."""

import re

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.runner import Runner
from torch import nn

from mmmoca.engine import (
    CodebookHook,
    RankMeHook,
    StepLogHook,
    TeacherEMAHook,
    complete_recipe,
)
from mmmoca.engine.config import read_run
from mmmoca.engine.dry_run import dry_run
from mmmoca.engine.file_check import check_paths
from mmmoca.engine.options import place
from mmmoca.engine.recipe import scale_lr
from mmmoca.engine.runners import ConsoleRunner
from mmmoca.registry import MODELS

from ..helpers.builders import build_moca
from ..helpers.frozen import (
    PIPELINE,
    PooledPixels,
    draw,
    folder_loader,
    toy_runner,
)
from ..helpers.images import CONFIGS, DEMO_CONFIG, point_to, write_images
from ..helpers.runs import demo_runner, own_config

RECIPE = CONFIGS / 'moca_vit-b16_200e.py'
OWN = CONFIGS / 'moca_vit-b16_own-images.py'
MASKS = (
    CONFIGS / 'segmentation/segmenter_moca-vit-b16_mask_own-masks-512x512.py'
)
BOXES = CONFIGS / 'detection/retinanet_moca-vit-b16_fpn_1x_own-coco.py'
TINY = CONFIGS / 'demo/moca_vit-tiny_own-images.py'
CLASSES = CONFIGS / 'demo/finetune_vit-tiny_textures.py'
PIPE = 'train_dataloader.dataset.pipeline'
REGISTERED = """from mmmoca.registry import MODELS
MODELS.register_module(name='InConfig', module=int)"""
BAD, MISSING = ValueError, FileNotFoundError


@pytest.fixture(scope='module')
def root(root):
    """Write two sets of coloured squares, and damaged ones for k-NN."""
    draw(root / 'bank', (5, 1, 4), 0)
    draw(root / 'query', (2, 3, 1), 1)
    for name, classes, broken in (
        ('one', 1, 'val/class_0/1.jpg'),
        ('query_cut', 2, 'val/class_0/1.jpg'),
        ('bank_cut', 2, 'train/class_1/2.jpg'),
    ):
        write_images(root / name, train=3, val=2, classes=classes)
        (root / name / broken).write_bytes(b'no image')
    (root / 'epoch.py').write_text(f"_base_ = '{OWN}'\nepoch = 3\n")
    (root / 'open.py').write_text('model = dict(')
    (root / 'class.py').write_text(f"_base_ = '{OWN}'\n{REGISTERED}\n")
    for name, line in (
        ('imports.py', 'from mmmoca.models import MOCA'),
        ('function.py', 'model = dict(head=dict(kappa=lambda: 3))'),
        ('slip.py', "custom_import = dict(imports=['own'])"),
        ('lacks.py', 'custom_hooks = _base_.nothing + []'),
    ):
        (root / name).write_text(f"{line}\n_base_ = '{OWN}'\n")
    (root / 'merged.py').write_text("_base_ = 'list.py'\nparts = dict(a=1)")
    (root / 'list.py').write_text('parts = [dict(a=2)]')
    read_run(OWN).dump(root / 'left.py')
    return root


def read(root, file, *texts, **options):
    read_run(root / file, texts or options)


def read_twice(root, file):
    try:
        for _ in range(2):
            read_run(root / file)
    finally:
        MODELS.module_dict.pop('InConfig')


def paths(root, stage, **options):
    (root / 'data/imagenet').mkdir(parents=True, exist_ok=True)
    check_paths(read_run(RECIPE, options), stage)


def ambiguous(root):
    twice = Config(dict(pipeline=[dict(type='Pad'), dict(type='Pad', size=3)]))
    place(twice, 'pipeline.Pad.size')


def train(root, hooks=None, **options):
    runner = demo_runner(root, 'refused', **options)
    if hooks is not None:
        runner._hooks = [hook() for hook in hooks]
    runner.train()


def batch(root, size, infinite):
    cfg = Config.fromfile(DEMO_CONFIG)
    point_to(cfg, root)
    cfg.train_dataloader.update(batch_size=size)
    cfg.train_dataloader.sampler.infinite = infinite
    ConsoleRunner.build_dataloader(cfg.train_dataloader)


def optimiser(root, **options):
    cfg = Config.fromfile(DEMO_CONFIG)
    cfg.optim_wrapper.paramwise_cfg = options
    build_optim_wrapper(build_moca(), cfg.optim_wrapper)


def layers(root, **options):
    flat = dict(layer_decay_rate=0.5, **options)
    kind = 'mmmoca.LayerDecayOptimWrapperConstructor'
    cfg = dict(constructor=kind, paramwise_cfg=flat)
    cfg['optimizer'] = dict(type='AdamW', lr=0.1)
    build_optim_wrapper(nn.Linear(1, 1), cfg)


def recipe(root, **options):
    cfg = own_config(root, **options)
    complete_recipe(cfg)


def incomplete(root, **options):
    Runner.from_cfg(own_config(root, **options)).train()


def unscaled(root, **scaling):
    cfg = read_run(DEMO_CONFIG)
    cfg.auto_scale_lr = dict(scaling, enable=True)
    scale_lr(cfg)


def rehearsal(root, knn=None, **options):
    options |= dict(knn_root=f'{root}/{knn}') if knn else {}
    cfg = own_config(root, str(root / 'rehearsal'), **options)
    complete_recipe(cfg)
    dry_run(cfg)


def knn(root, model=None, bank=None, query=None, **loop):
    bank = folder_loader(root / 'bank', **bank or {})
    if loop.pop('wrapped', False):
        # An image's index would count within its own set only.
        parts = [bank['dataset']]
        bank['dataset'] = dict(type='ConcatDataset', datasets=parts)
    toy_runner(
        model,
        work_dir=f'{root}/toy',
        val_dataloader=folder_loader(root / 'query', **query or {}),
        val_evaluator=dict(type='mmmoca.KNNAccuracy'),
        val_cfg=dict(type='mmmoca.KNNValLoop', bank_dataloader=bank, **loop),
    ).val()


def diverged(root):
    model = PooledPixels()
    model.teacher.bias.data[3] = torch.inf
    knn(root, model)


def low_shot(root, **loop):
    loop = dict(subsets=dict(a=['a.txt'])) | loop
    toy_runner(
        work_dir=f'{root}/toy',
        test_dataloader=folder_loader(root / 'query'),
        test_evaluator=dict(type='mmmoca.LowShotAccuracy'),
        test_cfg=dict(
            type='mmmoca.LowShotTestLoop',
            train_dataloader=folder_loader(root / 'bank'),
            **loop,
        ),
    ).test()


NO_INDEX = [*PIPELINE[:2], dict(type='PackInputs', meta_keys=())]
PLACE = 'train_dataloader.dataset.data_root'
VAL_PLACE = 'val_dataloader.dataset.data_root'
JUDGE = 'test_evaluator.ann_file'
BEST = 'default_hooks.checkpoint.save_best'
LR = 'optim_wrapper.optimizer.lr'
WORDS = 'model.codebook.num_words'
NEW = 'model.codebook.num_new_words'
REFUSED = [
    (read, ('epoch.py',), {}, BAD, 'epoch'),
    (read, ('open.py',), {}, SyntaxError, 'open.py'),
    (read, ('imports.py',), {}, BAD, 'custom_imports'),
    (read_twice, ('class.py',), {}, BAD, 'custom_imports'),
    (read, ('function.py',), {}, BAD, 'model.head.kappa'),
    (read, ('slip.py',), {}, BAD, 'custom_imports'),
    (read, ('lacks.py',), {}, BAD, 'nothing'),
    (read, ('merged.py',), {}, TypeError, 'parts.0'),
    *((read, (DEMO_CONFIG, f'{key}=4'), {}, BAD, key)
      for key in ('modle', 'lr', 'auto_lr.a', 'data_preprocessor.mean')),
    (read, (RECIPE, 'lr=1e-3'), {}, BAD, LR),
    (read, (BOXES,), {'data_root': 'a', JUDGE: '/x.json'}, BAD, JUDGE),
    (read, (BOXES,), {'data_root': 'a', 'test_evaluator': dict(
        type='CocoMetric', ann_file='/x.json')}, BAD, JUDGE),
    (read, (CLASSES, 'img_size=50'), {}, BAD, 'img_size=50'),
    *((read, (TINY, text), {}, BAD, text.split('=')[0])
      for text in ('log_level=debug', 'randomness.seed=-1')),
    (read, (TINY, 'solarize=.5'), {}, BAD, 'solarize'),
    (read, (MASKS,), dict(data_root=['a', 'b']), BAD, 'data_root'),
    (paths, ('train',), {PLACE: ['a', 'b']}, BAD, PLACE),
    (read, (RECIPE, 'arch=s'), {}, BAD, 'model.backbone.arch'),
    (read, ('left.py',), dict(knn_root='mine'), BAD, 'knn_root'),
    (read, (RECIPE,), dict(data_root='mine'), BAD, 'data_root'),
    *((read, (MASKS, text), {}, BAD, text.split('=')[0])
      for text in ('classes=none.txt', 'crop_size=1.5', 'crop_size=big',
                   'arch=vit-s', f'{PIPE}.Pad.size=3', 'crop=3',
                   'reduce_zero_label=1')),
    (ambiguous, (), {}, BAD, 'pipeline.Pad'),
    (read, (RECIPE, 'default_hooks.teacher.momentum=0.9'), {}, BAD,
     'teacher_ema'),
    (read, (RECIPE, 'custom_hooks.type=mmmoca.RankMeHook'), {}, BAD,
     'custom_hooks'),
    (paths, ('train',), {PLACE: 'mine'}, MISSING, PLACE),
    (paths, ('train',), {PLACE: __file__}, BAD, 'ImageShards'),
    (paths, ('val',), {VAL_PLACE: 'no'}, MISSING, 'val_cfg.data_root'),
    (paths, ('val',), {'val_cfg.data_root': 'no'}, MISSING,
     'val_cfg.data_root'),
    (paths, ('train',), dict(load_from='a.pth'), MISSING, 'a.pth'),
    (paths, ('test',), dict(load_from='mmmoca-teacher://b.pth'),
     MISSING, 'b.pth'),
    (train, ([StepLogHook, TeacherEMAHook],), {}, BAD, 'CodebookHook'),
    (train, ([StepLogHook, CodebookHook, TeacherEMAHook, TeacherEMAHook],),
     {}, BAD, 'TeacherEMAHook'),
    (train, ([RankMeHook],), {}, BAD, 'codebook'),
    (train, (), {'model.head.type': 'mmmoca.OwnHead'}, BAD, 'model.head.type'),
    (train, (), {'model.neck': dict(_delete_=True, depth=1)}, TypeError,
     'model.neck'),
    (train, (), {'model.backbone.tap_layer': 99}, BAD, 'tap_layer'),
    # The run measures other k, and few classes have no top 5.
    (train, (), {BEST: 'knn/top1_k20', 'val_cfg.k': (5, 10)}, BAD,
     'save_best'),
    (train, (), {BEST: 'knn/top5_k20'}, BAD, 'save_best'),
    (batch, (49, False), {}, BAD, '49'),
    (batch, (481, True), {}, BAD, '481'),
    (optimiser, (), dict(norm_decay_mult=0), BAD, 'prototype_lr'),
    (optimiser, (), dict(prototype_lr=-1), BAD, 'prototype_lr'),
    *((optimiser, (), dict(custom_keys=keys), BAD, named)
      for keys, named in (
          ({'bakbone': dict(lr_mult=2)}, 'bakbone'),
          ({'head': 0.1}, 'head'),
          ({'head': dict(lr_mult='0.1')}, 'lr_mult'))),
    (layers, (), dict(layer_decay_rat=0.5), BAD, 'layer_decay_rat'),
    (layers, (), {}, BAD, 'optimizer.weight_decay'),
    (incomplete, (), {WORDS: 32}, BAD, 'lr'),
    (incomplete, (), {WORDS: 32, LR: 1e-3}, BAD, 'momentum'),
    (recipe, (), dict(batch_size=999), BAD, 'batch_size'),
    (unscaled, (), {}, BAD, 'base_batch_size'),
    (unscaled, (), dict(rule='root', base_batch_size=8), BAD,
     'auto_scale_lr.rule'),
    (rehearsal, ('one',), {}, BAD, 'classes'),
    (rehearsal, ('query_cut',), {}, (OSError, BAD), 'class_0/1.jpg'),
    (rehearsal, ('bank_cut',), {}, (OSError, BAD), 'class_1/2.jpg'),
    (rehearsal, (), {'param_scheduler.warmup': 9}, BAD, 'warmup'),
    (rehearsal, (), {NEW: 9, 'train_dataloader.drop_last': False,
                     'batch_size': 9}, BAD,
     'num_new_words'),
    (knn, (), dict(bank=dict(with_label=False)), BAD, 'label'),
    (knn, (), dict(query=dict(with_label=False)), BAD, 'val'),
    (knn, (), dict(bank=dict(sampler=dict(type='InfiniteSampler'))),
     BAD, 'end'),
    (knn, (), dict(bank=dict(pipeline=NO_INDEX)), BAD, 'meta_keys'),
    (knn, (), dict(bank=dict(metainfo=dict(classes=[*'xyz']))),
     BAD, 'classes'),
    (knn, (), dict(wrapped=True), BAD, 'ConcatDataset'),
    (diverged, (), {}, BAD, 'finite'),
    (low_shot, (), dict(subsets={}), BAD, 'list'),
    (low_shot, (), dict(regularization=0), BAD, 'regularization'),
]  # fmt: skip


@pytest.mark.parametrize(
    ('build', 'arguments', 'options', 'error', 'named'), REFUSED
)
def test_refused(root, monkeypatch, build, arguments, options, error, named):
    monkeypatch.chdir(root)
    with pytest.raises(error, match=re.escape(named)):
        build(root, *arguments, **options)
