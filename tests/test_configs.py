# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Every shipped config builds and has the paper's numbers."""

import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.registry import HOOKS, MODELS, init_default_scope

from mmmoca.engine.config_check import check_config
from mmmoca.engine.slips import unread_variables

from .helpers.images import CONFIGS

FILES = sorted(
    path.relative_to(CONFIGS).as_posix()
    for path in CONFIGS.rglob('*.py')
    if '_base_' not in path.parts
)
# mmseg's heads read tensors while they are built, so these models are built on
# the CPU, which takes memory and time.
MARKS = dict(detection=pytest.mark.ops, segmentation=pytest.mark.slow)
NAMES = [
    pytest.param(name, marks=MARKS.get(name.partition('/')[0], ()))
    for name in FILES
]


@pytest.fixture(params=NAMES)
def config(request):
    cfg = Config.fromfile(CONFIGS / request.param)
    init_default_scope(cfg.default_scope)
    return cfg


def test_config_builds(config, no_first_weights):
    check_config(config)
    assert unread_variables(config) is None
    with torch.device('cpu' if config.default_scope == 'mmseg' else 'meta'):
        MODELS.build(config.model)
    for hook in config.default_hooks.values():
        if hook.get('type', '').startswith('mmmoca.'):
            # The recipe replaces 'auto' with a number.
            HOOKS.build(
                {k: 0.9 if v == 'auto' else v for k, v in hook.items()}
            )
    for name in ('train_dataloader', 'val_dataloader', 'test_dataloader'):
        dataset = (config.get(name) or {}).get('dataset', {})
        while 'dataset' in dataset:
            dataset = dataset['dataset']
        if 'pipeline' in dataset:
            Compose(dataset['pipeline'])


def test_recipe_of_the_paper():
    cfg = Config.fromfile(CONFIGS / 'moca_vit-b16_200e.py')
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    assert model.codebook.words.shape == (4096, 768)
    assert model.codebook.num_new_words == 4
    assert len(model.codebook.inner) == 100
    assert model.masking.counts == [(88, 39), (49, 39)]
    assert model.backbone.tap_layer == 8 and model.backbone.num_layers == 12
    assert len(model.neck.layers) == 2 and model.neck.embed_dims == 512
    assert model.head.lambda_img == 0.5 and model.head.kappa == 3
    assert cfg.train_dataloader.batch_size * 8 == 2048
    assert cfg.optim_wrapper.optimizer.lr == pytest.approx(1.2e-3)
    assert cfg.optim_wrapper.clip_grad.max_norm == 0.1
    assert cfg.train_cfg.max_epochs == 200
    large = Config.fromfile(CONFIGS / 'moca_vit-l16_200e.py').model
    with torch.device('meta'):
        backbone = MODELS.build(large).backbone
    assert (backbone.tap_layer, backbone.num_layers) == (20, 24)
