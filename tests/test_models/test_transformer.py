# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import copy

import pytest
import torch
from mmpretrain.models.backbones.vision_transformer import (
    TransformerEncoderLayer,
)
from torch import nn
from torch.nn import functional as F
from torch.profiler import profile
from torch.utils.checkpoint import checkpoint

from mmmoca.models.transformer import FFN, EncoderLayer, attention

from ..builders import build_moca


@pytest.mark.parametrize(
    ('dtype', 'tolerance'), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)]
)
def test_same_as_pytorchs_in_float64(dtype, tolerance):
    torch.manual_seed(0)
    leaves = torch.randn(3, 2, 3, 10, 8).to(dtype).requires_grad_()
    exact = leaves.detach().double().requires_grad_()
    result, expected = (
        attention(*leaves),
        F.scaled_dot_product_attention(*exact),
    )
    assert result.dtype == dtype
    upstream = torch.randn(2, 3, 10, 8)
    (grads,) = torch.autograd.grad(result, leaves, upstream.to(dtype))
    (expected_grads,) = torch.autograd.grad(expected, exact, upstream.double())
    for a, b in (
        (attention(*leaves.detach()), expected),
        (result, expected),
        (grads, expected_grads),
    ):
        assert (a.double() - b).norm() < tolerance * b.norm()


def test_drops_weights():
    torch.manual_seed(0)
    x = torch.ones(1, 1, 400, 4, dtype=torch.bfloat16)
    dropped = attention(x, x, x, dropout_p=0.5)
    assert dropped.std() > 0
    assert abs(float(dropped.mean()) - 1) < 0.05


@pytest.mark.parametrize('lean_mlp', [True, False])
def test_every_transformer_layer_is_one(lean_mlp):
    model = build_moca(backbone__lean_mlp=lean_mlp, neck__lean_mlp=lean_mlp)
    for part in (model.backbone, model.teacher, model.neck):
        for layer in part.layers:
            assert type(layer) is EncoderLayer
            assert (type(layer.ffn) is FFN) == lean_mlp


def stock_and_lean(**kwargs):
    torch.manual_seed(0)
    stock = TransformerEncoderLayer(16, 2, 64, **kwargs)
    lean = EncoderLayer(copy.deepcopy(stock))
    assert lean.state_dict().keys() == stock.state_dict().keys()
    return stock, lean


def results(layer, autocast=False, run=lambda layer, x: layer(x)):
    """Output and all gradients."""
    torch.manual_seed(0)
    x = torch.randn(3, 5, 16, requires_grad=True)
    with torch.autocast('cpu', torch.bfloat16, enabled=autocast):
        y = run(layer, x)
    y.square().sum().backward()
    return y, x.grad, *(p.grad for p in layer.parameters())


@pytest.mark.parametrize(
    ('autocast', 'options'),
    [
        (False, dict()),
        (True, dict()),
        (
            True,
            dict(
                drop_rate=0.2, drop_path_rate=0.2, layer_scale_init_value=0.1
            ),
        ),
        (False, dict(act_cfg=dict(type='ReLU', inplace=True))),
        (False, dict(act_cfg=dict(type='GELU', approximate='tanh'))),
        (False, dict(num_fcs=3)),
        (False, dict(ffn_type='swiglu_fused')),
    ],
    ids=str,
)
def test_layers_compute_as_mmpretrains(options, autocast):
    stock, lean = stock_and_lean(**options)
    for a, b in zip(results(lean, autocast), results(stock, autocast)):
        assert (a - b).norm() <= (2e-2 if autocast else 1e-5) * b.norm()


def test_layers_with_frozen_parts():
    stock, lean = stock_and_lean()
    for layer in (stock, lean):
        layer.ffn.layers[1].requires_grad_(False)
    for a, b in zip(results(lean), results(stock)):
        assert (a is None) == (b is None)
        if b is not None:
            torch.testing.assert_close(a, b)


def test_wrapped_linear_layers_are_called():
    _, lean = stock_and_lean()
    wrapped = nn.Sequential(lean.ffn.layers[1])
    lean.ffn.layers[1] = wrapped
    calls = []
    wrapped.register_forward_hook(lambda *_: calls.append(1))
    results(lean)
    assert calls


@pytest.mark.parametrize('use_reentrant', [False, True])
def test_layers_inside_activation_checkpoints(use_reentrant):
    stock, lean = stock_and_lean()

    def checkpointed(layer, x):
        return checkpoint(layer, x, use_reentrant=use_reentrant)

    found = results(lean, run=checkpointed)
    torch.testing.assert_close(found, results(stock))


@pytest.mark.parametrize('autocast', [False, True])
def test_mlp_keeps_one_hidden_tensor(autocast):
    stock, lean = stock_and_lean()
    x = torch.randn(8, 50, 16)
    hidden = 8 * 50 * 64 * (2 if autocast else 4)
    weight_copy = 64 * 16 * 2 if autocast else 0

    def kept(layer):
        """Bytes of what lives between the two passes."""
        with (
            profile(profile_memory=True) as recorded,
            torch.autocast('cpu', torch.bfloat16, enabled=autocast),
        ):
            y = layer.ffn(x, x)
        assert y.requires_grad
        return sum(
            event.nbytes()
            for event in recorded.profiler.kineto_results.events()
            if event.name() == '[memory]'
        )

    assert kept(stock) - kept(lean) == hidden + weight_copy
