# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.

from argparse import Namespace

from mmengine.registry import init_default_scope

from downstream_passes import build_model, segmentation
from tests.cityscapes import small_config, write_tree


def test_windows_of_a_prediction(tmp_path):
    write_tree(tmp_path, train=1, val=1)
    cfg = small_config(
        'segmenter_moca-vit-b16_linear_cityscapes-768x768.py',
        tmp_path,
        tmp_path,
    )
    init_default_scope('mmseg')
    model, _ = build_model(cfg)
    passes = segmentation(model, cfg, Namespace(size=(64, 128)))
    # Windows of 64 every 48 pixels: from 0, 48 and 64.
    assert passes['prediction']() == 3
