# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Configs of k-NN and low-shot classification; k-NN of real digits."""

import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner

from ..helpers.images import CONFIGS, point_to
from ..helpers.runs import COUNT, demo_model
from ..helpers.tools import load_tool


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """Digits, and a network that does not know them."""
    root = tmp_path_factory.mktemp('evaluation') / 'digits'
    load_tool('drawn_sets/make_digits').make_digits(root, limit=300)
    model = demo_model()
    torch.save(dict(state_dict=model.state_dict()), root / 'iter_1.pth')
    return root


def run(name, data):
    """Metrics of a config of ``configs/demo`` on that network and data."""
    cfg = Config.fromfile(CONFIGS / 'demo' / f'{name}_vit-tiny_textures.py')
    point_to(cfg, data)
    cfg.work_dir = str(data / name)
    cfg.experiment_name = f'{name}_{next(COUNT)}'
    cfg.load_from = str(data / 'iter_1.pth')
    return Runner.from_cfg(cfg).test()


def test_knn_config_equals_the_pretraining_config(data):
    expected = run('moca', data)['knn/top1_k20']
    metrics = run('knn', data)
    assert metrics['knn/top1_k20_t0.07'] == pytest.approx(expected)
    assert len(metrics) == 2 * 2 * 10
    # Far above chance, untrained as it is.
    assert metrics['knn/top1_k10_t0.03'] > 60


def test_configs_of_the_paper():
    """Each in full precision, as the loop does by itself."""
    knn, lowshot = (
        Config.fromfile(CONFIGS / 'classification' / f'{name}_in1k.py')
        for name in ('knn_vit-l16', 'lowshot_vit-b16')
    )
    for cfg, interpolation in ((knn, 'bicubic'), (lowshot, 'bilinear')):
        assert 'checkpoint_fit' in cfg.default_hooks
        resize = cfg.test_dataloader.dataset.pipeline[1]
        assert resize.scale == 256 and resize.backend == 'pillow'
        assert resize.interpolation == interpolation
        assert not {'fp16', 'bank_dtype'} & cfg.test_cfg.keys()
    assert not lowshot.model.backbone.final_norm
    assert lowshot.test_cfg.regularization == 0.1
    sets = [len(s) for s in lowshot.test_cfg.subsets.values()]
    assert sets == [3, 3, 3, 1]
    assert knn.test_cfg.k == (10, 20)
    # eval_knn.py of the authors
    temperatures = [3, 4, 5, 6, 7, 8, 10, 12, 15, 20]
    found = [100 * t for t in knn.test_cfg.temperature]
    assert found == pytest.approx(temperatures)
