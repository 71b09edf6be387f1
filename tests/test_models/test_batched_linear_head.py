# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Many linear classifiers at once; test_linear trains each alone."""

import pytest
import torch
from torch.nn import functional as F

from mmmoca.models import BatchedLinearHead

LRS = (1e-4, 0.03, 0.5, 9.0)


@pytest.fixture
def data():
    torch.manual_seed(0)
    return torch.randn(20, 12).double(), torch.randint(7, (20,))


def test_scores_losses_and_places(data):
    x, y = data
    head = BatchedLinearHead(12, 7, LRS).double()
    torch.nn.init.normal_(head.weight)
    layers = zip(head.weight, head.bias)
    scores = torch.stack([F.linear(x, *layer) for layer in layers])
    torch.testing.assert_close(head(x), scores.transpose(0, 1))
    entropies = [F.cross_entropy(score, y) for score in scores]
    losses = head.loss(x, y)
    # With these weights, SGD at rate 1 trains each classifier at its own rate.
    weighted = sum(lr * entropy for lr, entropy in zip(LRS, entropies))
    torch.testing.assert_close(losses['loss'], weighted)
    torch.testing.assert_close(losses['best_cross_entropy'], min(entropies))
    order = scores.argsort(dim=2, descending=True)  # (H, B, C)
    expected = (order == y[:, None]).nonzero()[:, 2].view(len(LRS), -1)
    assert torch.equal(head.places(x, y), expected.T)
    assert len(expected.unique()) > 3


def test_places_of_equal_and_broken_scores():
    head = BatchedLinearHead(1, 4, [1.0])
    head.weight.data.zero_()
    x, y = torch.ones(4, 1), torch.arange(4)
    # Among equal scores the first one wins, as in argmax.
    assert head.places(x, y).flatten().tolist() == [0, 1, 2, 3]
    head.bias.data.fill_(float('nan'))
    assert head.places(x, y).flatten().tolist() == [3, 3, 3, 3]


def test_full_precision_under_autocast(data):
    x, y = data[0].bfloat16(), data[1]
    head = BatchedLinearHead(12, 7, LRS)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        scores, loss = head(x), head.loss(x, y)['loss']
    torch.testing.assert_close(scores, head(x.float()))
    torch.testing.assert_close(loss, head.loss(x.float(), y)['loss'])
