# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import pytest
import torch
from torch.nn import functional as F

from mmmoca.models.attention import attention

from .test_moca import build


@pytest.mark.parametrize(
    ('dtype', 'tolerance'), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)]
)
def test_same_as_pytorchs_in_float64(dtype, tolerance):
    generator = torch.Generator().manual_seed(0)
    shape = 2, 3, 10, 8
    leaves = [
        torch.randn(shape, generator=generator).to(dtype).requires_grad_()
        for _ in range(3)
    ]
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    result = attention(*leaves)
    assert result.dtype == dtype
    expected = F.scaled_dot_product_attention(*exact)
    upstream = torch.randn(shape, generator=generator)
    grads = torch.autograd.grad(result, leaves, upstream.to(dtype))
    expected_grads = torch.autograd.grad(expected, exact, upstream.double())
    without_grad = attention(*(leaf.detach() for leaf in leaves))
    for a, b in zip(
        (without_grad, result, *grads), (expected, expected, *expected_grads)
    ):
        error = (a.double() - b).norm() / b.norm()
        assert error < tolerance


def test_drops_weights():
    torch.manual_seed(0)
    x = torch.ones(1, 1, 400, 4, dtype=torch.bfloat16)
    dropped = attention(x, x, x, dropout_p=0.5)
    assert dropped.std() > 0
    assert abs(float(dropped.mean()) - 1) < 0.05


def test_every_transformer_layer_uses_it():
    model = build()
    for part in (model.backbone, model.teacher, model.neck):
        for layer in part.layers:
            assert layer.attn.scaled_dot_product_attention is attention
