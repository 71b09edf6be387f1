# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The config that reads a small drawn COCO set."""

from mmengine.config import Config

from .tools import ROOT

CONFIGS = ROOT / 'configs' / 'detection'
SHAPES_CONFIG = CONFIGS / 'cascade-mask-rcnn_vit-tiny_fpn_shapes.py'
CLASSES = ('circle', 'cross', 'square', 'triangle')


def shapes_config(root, work_dir=None, **options):
    """Return the config of the drawn set in ``root``, with overrides."""
    cfg = Config.fromfile(SHAPES_CONFIG)
    cfg.work_dir = str(work_dir)
    for name in ('train', 'val', 'test'):
        loader = cfg[f'{name}_dataloader']
        loader.dataset.data_root = str(root)
        loader.persistent_workers = False
    cfg.train_dataloader.batch_size = 2
    for name in ('val', 'test'):
        cfg[f'{name}_evaluator'].ann_file = f'{root}/annotations/train.json'
    cfg.merge_from_dict({'log_level': 'WARNING'} | options)
    return cfg
