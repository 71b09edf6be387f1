# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A small drawn COCO set."""

import json

import pytest


@pytest.fixture(autouse=True)
def mmdet_scope():
    """Set the configs' scope for parts that are built without a runner."""
    from mmengine.registry import DefaultScope

    with DefaultScope.overwrite_default_scope('mmdet'):
        yield


@pytest.fixture(scope='session')
def shapes(tmp_path_factory):
    """Draw six training and two validation images. Tests only read them."""
    from ..helpers.tools import load_tool

    root = tmp_path_factory.mktemp('coco') / 'shapes'
    tool = load_tool('drawn_sets/make_shapes_coco')
    tool.make_shapes(root, train=6, val=2, size=96)
    return root


@pytest.fixture
def altered(shapes, tmp_path):
    """Write a changed annotation file; return the config that reads it.

    The images stay where they are.
    """
    from ..helpers.shapes import shapes_config

    def write(change):
        content = json.loads((shapes / 'annotations/train.json').read_text())
        change(content)
        path = tmp_path / 'altered.json'
        path.write_text(json.dumps(content))
        dataset = shapes_config(shapes).train_dataloader.dataset
        dataset.ann_file = str(path)
        return dataset

    return write
