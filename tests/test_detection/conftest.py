# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A small drawn COCO set, and the config that reads it."""

import json

import pytest
from mmengine.config import Config
from mmengine.registry import DefaultScope

from ..helpers.tools import ROOT, load_tool

CONFIGS = ROOT / 'configs' / 'detection'
SHAPES_CONFIG = CONFIGS / 'cascade-mask-rcnn_vit-tiny_fpn_shapes.py'
CLASSES = ('circle', 'cross', 'square', 'triangle')


@pytest.fixture(autouse=True)
def mmdet_scope():
    """The scope of the configs, for what is built without a runner."""
    with DefaultScope.overwrite_default_scope('mmdet'):
        yield


@pytest.fixture(scope='session')
def shapes(tmp_path_factory):
    """Six training and two validation images. Read it only."""
    root = tmp_path_factory.mktemp('coco') / 'shapes'
    tool = load_tool('drawn_sets/make_shapes_coco')
    tool.make_shapes(root, train=6, val=2, size=96)
    return root


def shapes_config(root, work_dir=None, **options):
    """The config of the drawn set, for ``root`` and with overrides."""
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


@pytest.fixture
def altered(shapes, tmp_path):
    """Write a changed annotation file; the dataset config that reads it.

    The images stay where they are.
    """

    def write(change):
        content = json.loads((shapes / 'annotations/train.json').read_text())
        change(content)
        path = tmp_path / 'altered.json'
        path.write_text(json.dumps(content))
        dataset = shapes_config(shapes).train_dataloader.dataset
        dataset.ann_file = str(path)
        return dataset

    return write
