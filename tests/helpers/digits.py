# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The labelled digits that scikit-learn ships, and a ViT of their size."""

import itertools

import torch
from mmengine.config import Config
from mmengine.runner import Runner

from mmmoca.engine.mmengine import stop_workers

from .images import CONFIGS, point_to
from .runs import demo_model
from .tools import load_tool

COUNT = itertools.count()
SIZE = 32
ARCH = dict(embed_dims=64, num_layers=2, num_heads=4, feedforward_channels=128)


def write_digits(root, limit=800):
    """Write digits with the tool, a quarter of them for validation."""
    tool = load_tool('drawn_sets/make_digits')
    tool.make_digits(root, size=8, limit=limit)
    return root


def save_pretraining(path):
    """Save an untrained MOCA with a student of zeros; return its teacher."""
    vit = dict(arch=ARCH, img_size=SIZE, patch_size=16, tap_layer=1)
    model = demo_model(
        **{
            'model.backbone': vit,
            'model.codebook.border': 0,
            'model.masking.mask_ratios': (0.5,),
            'model.masking.decoder_mask_ratios': (0.25,),
        }
    )
    for parameter in model.backbone.parameters():
        parameter.data.zero_()
    meta = dict(iter=1, epoch=0)
    torch.save(dict(state_dict=model.state_dict(), meta=meta), path)
    return model.teacher


def digits_config(name, root, work_dir, **options):
    """Return a config of ``configs/classification`` at the digits' size.

    Options have dotted keys.
    """
    cfg = Config.fromfile(CONFIGS / 'classification' / name)
    cfg.model.backbone.arch = ARCH
    settings = {
        'work_dir': str(work_dir),
        'experiment_name': f'digits_{next(COUNT)}',
        'model.backbone.img_size': SIZE,
        'model.backbone.patch_size': 16,
        'model.head.num_classes': 10,
        'train_dataloader.batch_size': 50,
        'train_dataloader.dataset.pipeline.2.scale': SIZE,
        'train_dataloader.dataset.pipeline.2.crop_ratio_range': (0.7, 1),
        # A mirrored digit is not a digit.
        'train_dataloader.dataset.pipeline.3.prob': 0.0,
        'auto_scale_lr.enable': True,
        'train_cfg.max_epochs': 2,
        'default_hooks.logger.interval': 5,
        'log_level': 'WARNING',
    }
    if name.startswith('finetune'):
        settings |= {
            'model.data_preprocessor.num_classes': 10,
            'model.head.in_channels': ARCH['embed_dims'],
            # The warm-up has one epoch instead of five.
            'param_scheduler.warmup': 1,
        }
    for loader in ('val_dataloader', 'test_dataloader'):
        settings |= {
            f'{loader}.dataset.pipeline.1.scale': SIZE,
            f'{loader}.dataset.pipeline.2.crop_size': SIZE,
        }
    point_to(cfg, root)
    cfg.merge_from_dict(settings | options)
    return cfg


def train(cfg):
    """Train with a config; return the runner."""
    runner = Runner.from_cfg(cfg)
    runner.train()
    stop_workers(runner)
    return runner
