# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import pytest
import torch
from torch.nn import functional as F

from mmmoca.models.objectives import (
    assignments,
    bag_assignment_loss,
    summarize_assignments,
    token_assignment_loss,
)


@pytest.fixture
def inputs():
    generator = torch.Generator().manual_seed(0)

    def randn(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return dict(
        features=randn(23, 6).requires_grad_(),
        prototypes=F.normalize(randn(11, 6)).requires_grad_(),
        kappa=3.0,
        tokens=randn(23, 8),
        words=F.normalize(randn(11, 8)),
        sharpness=torch.tensor(17.0, dtype=torch.float64),
    )


def reference(features, prototypes, kappa, tokens, words, sharpness):
    similarity = F.normalize(tokens, dim=1) @ words.T
    target = (similarity * sharpness).softmax(dim=1)
    log_prediction = (kappa * features @ prototypes.T).log_softmax(dim=1)
    return F.kl_div(log_prediction, target, reduction='batchmean')


@pytest.mark.parametrize('chunk_size', [1, 5, 23, 100])
def test_token_loss_and_gradients(inputs, chunk_size):
    expected = reference(**inputs)
    leaves = inputs['features'], inputs['prototypes']
    expected_grads = torch.autograd.grad(5 * expected, leaves)
    loss = token_assignment_loss(**inputs, chunk_size=chunk_size)
    grads = torch.autograd.grad(5 * loss, leaves)
    torch.testing.assert_close((loss, *grads), (expected, *expected_grads))


def test_token_loss_gradcheck(inputs):
    rest = {
        key: value
        for key, value in inputs.items()
        if key not in ('features', 'prototypes')
    }
    assert torch.autograd.gradcheck(
        lambda x, w: token_assignment_loss(x, w, **rest, chunk_size=4),
        (inputs['features'], inputs['prototypes']),
    )


def test_token_loss_is_zero_for_a_perfect_student(inputs):
    tokens = F.normalize(inputs['tokens'], dim=1)
    words, sharpness = inputs['words'], inputs['sharpness']
    loss = token_assignment_loss(
        tokens, words, float(sharpness), tokens, words, sharpness
    )
    assert abs(float(loss)) < 1e-12


def test_bag_loss(inputs):
    bags = torch.rand(23, 11, dtype=torch.float64)
    bags /= bags.sum(dim=1, keepdim=True)
    features, prototypes = inputs['features'], inputs['prototypes']
    loss = bag_assignment_loss(features, prototypes, 3.0, bags)
    log_p = (3 * features @ prototypes.T).log_softmax(dim=1)
    expected = (bags * (bags.log() - log_p)).sum() / 23
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize('chunk_size', [1, 9, 1000])
def test_summary(chunk_size):
    tokens = torch.randn(5, 4, 8)
    words = F.normalize(torch.randn(11, 8))
    inner = torch.tensor([1, 2])
    sharpness = torch.tensor(20.0)
    bags, spread = summarize_assignments(
        tokens, words, sharpness, inner, chunk_size
    )
    similarity = F.cosine_similarity(tokens[:, :, None], words, dim=3)
    codes = (similarity * 20).softmax(dim=2)
    torch.testing.assert_close(bags, codes[:, [1, 2]].mean(dim=1))
    torch.testing.assert_close(
        spread, (similarity.amax(2) - similarity.mean(2)).mean(1)
    )
    torch.testing.assert_close(assignments(tokens, words, sharpness), codes)


def test_full_precision_inside_autocast():
    """bf16 would shift the assignments' logits by up to 0.08."""
    tokens, words = torch.randn(40, 64), F.normalize(torch.randn(50, 64))
    features, prototypes = (
        torch.randn(40, 16),
        F.normalize(torch.randn(50, 16)),
    )
    sharpness = torch.tensor(20.0)
    arguments = features, prototypes, 3.0, tokens, words, sharpness
    expected = token_assignment_loss(*arguments)
    codes = assignments(tokens, words, sharpness)
    with torch.autocast('cpu', torch.bfloat16):
        loss = token_assignment_loss(*arguments)
        bags, _ = summarize_assignments(
            tokens[:, None], words, sharpness, torch.tensor([0])
        )
    assert loss.dtype == bags.dtype == torch.float32
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(bags, codes, rtol=1e-5, atol=1e-7)
