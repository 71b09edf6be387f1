# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The frozen model of linear probing and its features."""

import pytest
import torch
from mmpretrain.registry import MODELS
from mmpretrain.structures import DataSample

from ..helpers.probes import FEATURES, build, config


def tokens(model, images):
    """Return tokens of each block after the final norm, as iBOT uses them."""
    outputs = []
    hooks = [
        layer.register_forward_hook(lambda m, i, out: outputs.append(out))
        for layer in model.backbone.layers
    ]
    with torch.no_grad():
        model.backbone(images)
    for hook in hooks:
        hook.remove()
    return [model.backbone.ln1(x).detach() for x in outputs]


@pytest.mark.parametrize('name', FEATURES)
def test_features(name):
    """A model that loads the backbone alone has the same features."""
    options, expected = FEATURES[name]
    source, model = build(**options), MODELS.build(config(**options))
    images = torch.randn(3, 3, 16, 16)
    wanted = torch.cat(expected(tokens(source, images)), dim=1)
    assert model.head.in_channels == wanted.shape[1]
    weights = {
        name: value
        for name, value in source.state_dict().items()
        if name.startswith('backbone.')
    }
    model.load_state_dict(weights, strict=False)
    for each in (source, model):
        torch.testing.assert_close(each.extract_feat(images), wanted)


def test_training_cannot_wake_the_backbone():
    model = build(out_type='cls_token', drop_rate=0.5, drop_path_rate=0.5)
    model.train()
    assert model.head.training
    assert not any(m.training for m in model.backbone.modules())
    images = torch.randn(4, 3, 16, 16)
    first, second = (model.extract_feat(images) for _ in range(2))
    assert torch.equal(first, second) and not first.requires_grad
    samples = [DataSample().set_gt_label(i) for i in range(4)]
    model.loss(images, samples)['loss'].backward()
    for name, parameter in model.named_parameters():
        trained = name in ('head.weight', 'head.bias')
        assert parameter.requires_grad == trained
        assert (parameter.grad is not None) == trained
