# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import copy

import pytest
import torch
from mmpretrain.models.backbones.vision_transformer import (
    TransformerEncoderLayer,
)
from torch.profiler import profile
from torch.utils.checkpoint import checkpoint

from mmmoca.models.transformer import FFN, EncoderLayer

from ..helpers.builders import build_moca


def test_every_transformer_layer_is_one():
    for lean in (True, False):
        model = build_moca(backbone__lean_mlp=lean, neck__lean_mlp=lean)
        for part in (model.backbone, model.teacher, model.neck):
            for layer in part.layers:
                assert type(layer) is EncoderLayer
                assert (type(layer.ffn) is FFN) == lean


def stock_and_lean(**kwargs):
    torch.manual_seed(0)
    stock = TransformerEncoderLayer(16, 2, 64, **kwargs)
    return stock, EncoderLayer(copy.deepcopy(stock))


def results(layer, autocast=False, run=lambda layer, x: layer(x)):
    """Return output and all gradients."""
    torch.manual_seed(0)
    x = torch.randn(3, 5, 16, requires_grad=True)
    with torch.autocast('cpu', torch.bfloat16, enabled=autocast):
        y = run(layer, x)
    y.square().sum().backward()
    gradients = {name: p.grad for name, p in layer.named_parameters()}
    return dict(gradients, y=y, x=x.grad)


DROPPED = dict.fromkeys(('attn_drop_rate', 'drop_rate', 'drop_path_rate'), 0.2)


@pytest.mark.parametrize(
    ('autocast', 'options'),
    [
        (False, dict()),
        (True, dict()),
        (False, DROPPED | dict(layer_scale_init_value=0.1)),
        (False, dict(act_cfg=dict(type='ReLU', inplace=True))),
        (False, dict(act_cfg=dict(type='GELU', approximate='tanh'))),
        (False, dict(num_fcs=3)),
        (False, dict(ffn_type='swiglu_fused')),
    ],
    ids=str,
)
def test_layers_compute_as_mmpretrains(options, autocast):
    """In bfloat16 on CPUs, attention uses plain matrix products."""
    stock, lean = stock_and_lean(**options)
    expected, found = results(stock, autocast), results(lean, autocast)
    assert found.keys() == expected.keys()
    tolerance = 2e-2 if autocast else 1e-5
    for name, value in expected.items():
        assert (found[name] - value).norm() <= tolerance * value.norm()


def test_layers_with_frozen_parts_inside_activation_checkpoints():
    stock, lean = stock_and_lean()
    for layer in (stock, lean):
        layer.ffn.layers[1].requires_grad_(False)
    for run in (
        lambda layer, x: layer(x),
        lambda layer, x: checkpoint(layer, x, use_reentrant=True),
    ):
        for layer in (stock, lean):
            layer.zero_grad()
        torch.testing.assert_close(results(lean, run=run), results(stock))


def test_mlp_keeps_one_hidden_tensor():
    x = torch.randn(8, 50, 16)

    def kept(layer):
        """Return the bytes that are kept between the two passes."""
        with (
            profile(profile_memory=True) as recorded,
            torch.autocast('cpu', torch.bfloat16),
        ):
            y = layer.ffn(x, x)
        assert y.requires_grad
        return sum(
            event.nbytes()
            for event in recorded.profiler.kineto_results.events()
            if event.name() == '[memory]'
        )

    stock, lean = map(kept, stock_and_lean())
    assert stock - lean == 2 * (8 * 50 * 64 + 64 * 16)  # and a weight's copy
