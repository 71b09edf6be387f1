# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Learning rates and weight decays of all parameters, by the formula."""

import re

import pytest
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS
from torch import nn

from ..builders import ARCH

RATE, LR, DECAY, LAYERS = 0.75, 2e-4, 0.05, ARCH['num_layers']


class Detector(nn.Module):
    """What a detector or segmentor looks like to the constructor."""

    def __init__(self):
        super().__init__()
        vit = dict(type='mmpretrain.VisionTransformer', arch=ARCH, img_size=32)
        self.backbone = MODELS.build(vit)
        self.neck = nn.Sequential(nn.Conv2d(16, 8, 1), nn.BatchNorm2d(8))


def build(model, **further):
    flat = ('norm_decay_mult', 'bias_decay_mult', 'flat_decay_mult')
    paramwise_cfg = dict.fromkeys(flat, 0.0) | further
    cfg = dict(
        constructor='mmmoca.LayerDecayOptimWrapperConstructor',
        optimizer=dict(type='AdamW', lr=LR, weight_decay=DECAY),
        paramwise_cfg=dict(layer_decay_rate=RATE, **paramwise_cfg),
    )
    return build_optim_wrapper(model, cfg)


def expected_rate(name):
    if re.match(r'backbone\.(cls_token|pos_embed|patch_embed)', name):
        return LR * RATE ** (LAYERS + 1)
    layer = re.match(r'backbone\.layers\.(\d+)\.', name)
    if layer:
        return LR * RATE ** (LAYERS - int(layer[1]))
    return LR


def test_all_parameters():
    model = Detector()
    groups = build(model).optimizer.param_groups
    found = {
        id(parameter): (group['lr'], group['weight_decay'])
        for group in groups
        for parameter in group['params']
    }
    assert set(found) == set(map(id, model.parameters()))
    for name, parameter in model.named_parameters():
        decay = DECAY if parameter.ndim > 1 else 0
        expected = pytest.approx((expected_rate(name), decay), rel=1e-12)
        assert found[id(parameter)] == expected, name
    assert len({rate for rate, _ in found.values()}) == LAYERS + 2


def test_keys_that_nothing_reads():
    with pytest.raises(ValueError, match='got .*layer_decay_rat'):
        build(Detector(), layer_decay_rat=0.5)
