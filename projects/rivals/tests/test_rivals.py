# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Rivals train the same encoder as MOCA, and can be compared with it."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from PIL import Image

import mmmoca
from mmmoca.models.transformer import attention
from projects.rivals.correlations import correlations
from projects.rivals.hooks import RivalHook
from projects.rivals.photographs import cut
from tests.helpers.tools import run_tool

CONFIGS = Path(__file__).parents[1] / 'configs'
METHODS = 'moca', 'mocov3', 'byol', 'mae'


def config_of(method, images='textures'):
    return CONFIGS / f'{method}_vit-tiny_{images}.py'


def model_of(method, images='textures'):
    cfg = Config.fromfile(config_of(method, images))
    init_default_scope(cfg.default_scope)
    return MODELS.build(cfg.model)


@pytest.mark.parametrize('images', ['textures', 'photographs'])
def test_all_train_one_encoder(images):
    shapes = []
    for method in METHODS:
        weights = model_of(method, images).backbone.state_dict()
        shapes.append({k: v.shape for k, v in weights.items()})
    assert all(found == shapes[0] for found in shapes)


def test_rivals_have_what_moca_has():
    """RivalHook sets the teacher's final momentum, and our attention."""
    model = model_of('byol')
    assert model.target_net.end_momentum == 0  # mmpretrain's own
    RivalHook(end=0.7).before_train(SimpleNamespace(model=model))
    assert model.target_net.end_momentum == 0.7
    layers = [*model.backbone.layers, *model.target_net.module[0].layers]
    assert len(layers) == 8
    for layer in layers:
        assert layer.attn.scaled_dot_product_attention is attention


@pytest.mark.slow
@pytest.mark.parametrize('method', ['mocov3', 'byol', 'mae'])
def test_a_rival_trains_and_embeds(root, tmp_path, method):
    line = config_of(method), '--no-validate', '--work-dir', tmp_path
    options = {
        'train_dataloader.dataset.data_root': root,
        'train_dataloader.num_workers': 0,
        'train_cfg.max_iters': 2,
        'experiment_name': method,
    }
    options = [f'{key}={value}' for key, value in options.items()]
    run_tool('tools/train.py', *line, '--cfg-options', *options)
    encoder = mmmoca.load(tmp_path / 'iter_2.pth')
    found = encoder.embed(root / 'val', num_workers=0)
    assert found.avg.shape == (15, 128) and found.avg.isfinite().all()


def test_photographs_are_cut_into_squares(tmp_path):
    """Photographs are classes; plain or incomplete squares are left out."""
    draw = np.random.default_rng(0)
    for number in range(2):
        pixels = draw.integers(0, 256, (70, 100, 3), dtype=np.uint8)
        pixels[:32, :32] = 7
        Image.fromarray(pixels).save(tmp_path / f'photo{number}.png')
    out = tmp_path / 'out'
    cut(tmp_path, out, size=32, side=2048, contrast=12, most=150)
    files = sorted(out.glob('*/*/*.png'))
    assert {file.parent.name for file in files} == {'000_photo0', '001_photo1'}
    assert {file.stem for file in files} == {
        *('00-01', '00-02', '01-00', '01-01', '01-02')
    }
    assert len([*out.glob('val/*/*')]) == 2 and len(files) == 10
    square = np.array(Image.open(next(out.glob('*/001_photo1/01-02.png'))))
    assert (square == pixels[32:64, 64:96]).all()


def test_correlations_of_a_run():
    """RankMe rises with k-NN until the last checkpoint; agreement falls."""
    results = [
        {
            'rank_me': rank,
            'agreement': -n,
            'knn': {'k=20': n},
            'linear': dict(top1=n * n),
        }
        for n, rank in enumerate([1, 2, 4, 3])
    ]
    # 1 - 6 * (1 + 1) / (4 * (16 - 1))
    found = [*correlations(results)]
    assert found == ['-1.00 / -1.00', '+0.80 / +0.80']
