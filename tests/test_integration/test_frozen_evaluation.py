# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""k-NN and low-shot configs on a pretraining checkpoint, on real digits."""

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmengine.runner import Runner
from mmpretrain.registry import MODELS

from ..images import CONFIGS
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


def run(name, data, work_dir, **options):
    """Metrics of a config of ``configs/demo`` on that network and data."""
    cfg = Config.fromfile(CONFIGS / 'demo' / f'{name}_vit-tiny_textures.py')
    images = 'train' if name == 'lowshot' else 'bank'
    for loader in ('test_dataloader', f'test_cfg.{images}_dataloader'):
        options |= {
            f'{loader}.dataset.data_root': str(data),
            f'{loader}.num_workers': 0,
            f'{loader}.persistent_workers': False,
            f'{loader}.pin_memory': False,
        }
    options |= {
        'work_dir': str(work_dir),
        'experiment_name': f'{name}_{work_dir.name}',
        'load_from': str(data / 'iter_1.pth'),
    }
    cfg.merge_from_dict(options)
    return Runner.from_cfg(cfg).test()


def test_knn_config_equals_the_pretraining_config(data, tmp_path):
    expected = run('moca', data, tmp_path)
    metrics = run('knn', data, tmp_path)
    assert metrics['knn/top1_k20_t0.07'] == pytest.approx(
        expected['knn/top1_k20']
    )
    assert len(metrics) == 2 * 2 * 10
    # Far above chance, untrained as it is.
    assert metrics['knn/top1_k10_t0.03'] > 60


def test_low_shot_config(data, tmp_path):
    folder = data / 'subsets'
    subsets = dict(_delete_=True)
    for shots in (1, 2, 5):
        subsets[f'{shots}shot'] = sorted(
            str(path) for path in folder.glob(f'{shots}shot_set*.txt')
        )
    subsets['1percent'] = str(folder / '1percent.txt')
    metrics = run('lowshot', data, tmp_path, **{'test_cfg.subsets': subsets})
    assert metrics['lowshot/top1_5shot'] > metrics['lowshot/top1_1shot']
    assert metrics['lowshot/top1_5shot'] > 13  # chance is 10


@pytest.mark.parametrize('name', ['knn', 'lowshot'])
@pytest.mark.parametrize(('arch', 'width'), [('b', 768), ('l', 1024)])
def test_configs_of_the_paper(name, arch, width):
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
    if name == 'lowshot':
        assert resize.interpolation == 'bilinear'
        assert not model.backbone.final_norm
        assert cfg.test_cfg.regularization == 0.1
        sets = [len(s) for s in cfg.test_cfg.subsets.values()]
        assert sets == [3, 3, 3, 1]
        return
    assert resize.interpolation == 'bicubic'
    assert cfg.test_cfg.k == (10, 20)
    # eval_knn.py of the authors
    assert [100 * t for t in cfg.test_cfg.temperature] == (
        pytest.approx([3, 4, 5, 6, 7, 8, 10, 12, 15, 20])
    )
    # All in fp32, as the loop does by itself.
    assert not {'fp16', 'bank_dtype'} & cfg.test_cfg.keys()
