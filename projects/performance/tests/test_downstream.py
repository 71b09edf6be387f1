# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.

from mmengine.registry import MODELS, init_default_scope

from downstream_models import predict
from tests.cityscapes import small_config, write_tree


def test_windows_of_a_prediction(tmp_path):
    write_tree(tmp_path, train=1, val=1)
    cfg = small_config(
        'segmenter_moca-vit-b16_linear_cityscapes-768x768.py',
        tmp_path,
        tmp_path,
    )
    init_default_scope('mmseg')
    windows, seconds = predict(MODELS.build(cfg.model).eval(), (64, 128), 2)
    # Windows of 64 every 48 pixels: from 0, 48 and 64.
    assert windows == 3
    assert seconds > 0
