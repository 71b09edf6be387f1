# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A real labelled data set that scikit-learn ships, and a ViT of its size."""

import itertools

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner

from .images import CONFIGS, DEMO_CONFIG
from .tools import load_tool

COUNT = itertools.count()
SIZE = 32
ARCH = dict(embed_dims=64, num_layers=2, num_heads=4, feedforward_channels=128)


def write_digits(root, limit=800):
    """Write the digits as class folders by the tool.

    Args:
        root (Path): Folder to make.
        limit (int): Number of images, at least 100. A quarter is for
            validation.

    Returns:
        Path: The folder.
    """
    tool = load_tool('dataset_converters/make_digits')
    tool.make_digits(root, size=8, limit=limit)
    return root


def save_pretraining(path):
    """Save an untrained MOCA whose student and teacher differ.

    Args:
        path (Path): File of the checkpoint.

    Returns:
        MOCA: The model.
    """
    cfg = Config.fromfile(DEMO_CONFIG)
    cfg.merge_from_dict(
        {
            'model.backbone': dict(
                arch=ARCH, img_size=SIZE, patch_size=16, tap_layer=1
            ),
            'model.codebook.border': 0,
            'model.masking': dict(
                mask_ratios=(0.5,), decoder_mask_ratios=(0.25,)
            ),
        }
    )
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    model = MODELS.build(cfg.model)
    model.init_weights()
    for parameter in model.backbone.parameters():
        parameter.data.zero_()
    torch.save(
        dict(state_dict=model.state_dict(), meta=dict(iter=1, epoch=0)), path
    )
    return model


def digits_config(name, root, work_dir, **options):
    """A config of classification at the digits' size.

    Args:
        name (str): Its file.
        root (Path): Where the digits lie.
        work_dir (Path): Work dir of the run.
        **options: Further settings, dots in names allowed.

    Returns:
        Config: The config.
    """
    cfg = Config.fromfile(CONFIGS / 'classification' / name)
    cfg.model.backbone.arch = ARCH
    if name.startswith('finetune'):
        cfg.merge_from_dict(
            {
                'model.data_preprocessor.num_classes': 10,
                'model.head.in_channels': ARCH['embed_dims'],
                # A warm-up of one epoch instead of five.
                'param_scheduler.warmup': 1,
            }
        )
    cfg.merge_from_dict(
        {
            'work_dir': str(work_dir),
            'experiment_name': f'digits_{next(COUNT)}',
            'model.backbone.img_size': SIZE,
            'model.backbone.patch_size': 16,
            'model.head.num_classes': 10,
            'train_dataloader.batch_size': 50,
            'train_dataloader.dataset.pipeline.2.scale': SIZE,
            'train_dataloader.dataset.pipeline.2.crop_ratio_range': (0.7, 1),
            # A mirrored digit is none.
            'train_dataloader.dataset.pipeline.3.prob': 0.0,
            'auto_scale_lr.enable': True,
            'train_cfg.max_epochs': 2,
            'default_hooks.logger.interval': 5,
            'log_level': 'WARNING',
        }
    )
    for loader in ('train', 'val', 'test'):
        cfg.merge_from_dict(
            {
                f'{loader}_dataloader.dataset.data_root': str(root),
                f'{loader}_dataloader.num_workers': 0,
                f'{loader}_dataloader.persistent_workers': False,
                f'{loader}_dataloader.pin_memory': False,
            }
        )
        if loader != 'train':
            cfg.merge_from_dict(
                {
                    f'{loader}_dataloader.dataset.pipeline.1.scale': SIZE,
                    f'{loader}_dataloader.dataset.pipeline.2.crop_size': SIZE,
                }
            )
    cfg.merge_from_dict(options)
    return cfg


def train(cfg):
    """Train by a config; the runner."""
    runner = Runner.from_cfg(cfg)
    runner.train()
    return runner
