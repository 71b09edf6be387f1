# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Rivals train the same encoder, which can be compared with MOCA's."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

import mmmoca
from mmmoca.models.transformer import attention
from projects.rivals.hooks import RivalHook
from tests.helpers.tools import run_tool

CONFIGS = Path(__file__).parents[1] / 'configs'
METHODS = 'moca', 'mocov3', 'byol', 'mae'


def config_of(method):
    return CONFIGS / f'{method}_vit-tiny_textures.py'


def model_of(method):
    cfg = Config.fromfile(config_of(method))
    init_default_scope(cfg.default_scope)
    return MODELS.build(cfg.model)


def test_all_train_one_encoder():
    shapes = []
    for method in METHODS:
        weights = model_of(method).backbone.state_dict()
        shapes.append({k: v.shape for k, v in weights.items()})
    assert all(found == shapes[0] for found in shapes)


def test_rivals_have_what_moca_has():
    """A teacher that may end near the student, and the faster attention."""
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
