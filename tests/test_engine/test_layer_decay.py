# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Learning rates and weight decays of all parameters follow the formula."""

import re

import pytest
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS
from torch import nn

from ..helpers.builders import ARCH

RATE, LR, DECAY, LAYERS = 0.75, 2e-4, 0.05, ARCH['num_layers']


def build(**further):
    """Return the groups of a detector or segmentor, by parameter."""
    model = nn.Module()
    vit = dict(type='mmpretrain.VisionTransformer', arch=ARCH, img_size=32)
    model.backbone = MODELS.build(vit)
    model.neck = nn.Sequential(nn.Conv2d(16, 8, 1), nn.BatchNorm2d(8))
    flat = ('norm_decay_mult', 'bias_decay_mult', 'flat_decay_mult')
    paramwise_cfg = dict.fromkeys(flat, 0.0) | further
    cfg = dict(
        constructor='mmmoca.LayerDecayOptimWrapperConstructor',
        optimizer=dict(type='AdamW', lr=LR, weight_decay=DECAY),
        paramwise_cfg=dict(layer_decay_rate=RATE, **paramwise_cfg),
    )
    groups = build_optim_wrapper(model, cfg).optimizer.param_groups
    return model, {group['param_name']: group for group in groups}


def test_all_parameters():
    model, groups = build()
    assert groups.keys() == dict(model.named_parameters()).keys()
    for name, parameter in model.named_parameters():
        power = 0
        if re.match(r'backbone\.(cls_token|pos_embed|patch_embed)', name):
            power = LAYERS + 1
        elif layer := re.match(r'backbone\.layers\.(\d+)\.', name):
            power = LAYERS - int(layer[1])
        expected = pytest.approx(LR * RATE**power, rel=1e-12)
        assert groups[name]['lr'] == expected, name
        decay = DECAY if parameter.ndim > 1 else 0
        assert groups[name]['weight_decay'] == decay, name
