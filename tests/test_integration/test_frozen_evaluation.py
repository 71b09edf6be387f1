# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""k-NN and low-shot configs on a pretraining checkpoint, on real digits."""

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmengine.runner import Runner
from mmpretrain.registry import MODELS

from ..images import CONFIGS, DEMO_CONFIG, point_to
from ..runs import demo_model
from ..tools import load_tool


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """Digits, subsets of them, and a network that does not know them."""
    root = tmp_path_factory.mktemp('evaluation') / 'digits'
    load_tool('dataset_converters/make_digits').make_digits(root, limit=300)
    make_subsets = load_tool('dataset_converters/make_subset').make_subsets
    make_subsets(root / 'train', root / 'subsets', sets=2)
    model = demo_model()
    with torch.no_grad():
        for parameter in model.teacher.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    torch.save(dict(state_dict=model.state_dict()), root / 'iter_1.pth')
    return root


def run(cfg, data, work_dir):
    cfg.work_dir = str(work_dir)
    cfg.load_from = str(data / 'iter_1.pth')
    cfg.experiment_name = str(work_dir)
    cfg.test_dataloader.pin_memory = False
    for value in cfg.test_cfg.values():
        if isinstance(value, dict) and 'dataset' in value:
            value.pin_memory = False
    return Runner.from_cfg(cfg).test()


def test_knn_config_equals_the_pretraining_config(data, tmp_path):
    pretraining = Config.fromfile(DEMO_CONFIG)
    point_to(pretraining, data)
    expected = run(pretraining, data, tmp_path / 'pretraining')

    cfg = Config.fromfile(CONFIGS / 'demo' / 'knn_vit-tiny_textures.py')
    for loader in (cfg.test_dataloader, cfg.test_cfg.bank_dataloader):
        loader.dataset.data_root = str(data)
    metrics = run(cfg, data, tmp_path / 'knn')
    assert metrics['knn/top1_k20_t0.07'] == pytest.approx(
        expected['knn/top1_k20']
    )
    assert len(metrics) == 2 * 2 * 10
    # Far above chance, untrained as it is.
    assert metrics['knn/top1_k10_t0.03'] > 60


def test_low_shot_config(data, tmp_path):
    cfg = Config.fromfile(CONFIGS / 'demo' / 'lowshot_vit-tiny_textures.py')
    for loader in (cfg.test_dataloader, cfg.test_cfg.train_dataloader):
        loader.dataset.data_root = str(data)
    cfg.test_cfg.subsets = {
        f'{shots}shot': [
            str(data / 'subsets' / f'{shots}shot_set{i}.txt') for i in range(2)
        ]
        for shots in (1, 2, 5)
    } | {'1percent': str(data / 'subsets' / '1percent.txt')}
    metrics = run(cfg, data, tmp_path / 'lowshot')
    assert metrics['lowshot/top1_5shot'] > metrics['lowshot/top1_1shot']
    assert metrics['lowshot/top1_5shot'] > 13  # chance is 10


def test_configs_of_the_paper():
    for name in ('knn', 'lowshot'):
        for arch, width in (('b', 768), ('l', 1024)):
            path = CONFIGS / 'classification' / f'{name}_vit-{arch}16_in1k.py'
            cfg = Config.fromfile(path)
            init_default_scope(cfg.default_scope)
            with torch.device('meta'):
                model = MODELS.build(cfg.model)
                feats = model.extract_feat(torch.empty(2, 3, 224, 224))[-1]
            assert feats.shape == (2, width)
            assert 'checkpoint_fit' in cfg.default_hooks
            resize = cfg.test_dataloader.dataset.pipeline[1]
            assert resize.scale == 256 and resize.backend == 'pillow'
            if name == 'knn':
                assert resize.interpolation == 'bicubic'
                assert cfg.test_cfg.k == (10, 20)
                # eval_knn.py of the authors
                assert [100 * t for t in cfg.test_cfg.temperature] == (
                    pytest.approx([3, 4, 5, 6, 7, 8, 10, 12, 15, 20])
                )
                # All in fp32, as the loop does by itself.
                assert 'fp16' not in cfg.test_cfg
                assert 'bank_dtype' not in cfg.test_cfg
            else:
                assert resize.interpolation == 'bilinear'
                assert not model.backbone.final_norm
                assert cfg.test_cfg.regularization == 0.1
                sets = [len(s) for s in cfg.test_cfg.subsets.values()]
                assert sets == [3, 3, 3, 1]
