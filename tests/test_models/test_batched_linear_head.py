# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Many linear classifiers at once against as many trained alone."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mmmoca.models import BatchedLinearHead

LRS = (1e-4, 0.03, 0.5, 9.0)


@pytest.fixture
def data():
    torch.manual_seed(0)
    return torch.randn(6, 20, 12).double(), torch.randint(7, (6, 20))


def copies(head):
    """Each classifier as a layer of its own."""
    layers = nn.ModuleList(nn.Linear(12, 7) for _ in LRS).double()
    for weight, bias, layer in zip(head.weight, head.bias, layers):
        layer.load_state_dict(dict(weight=weight, bias=bias))
    return layers


def test_each_classifier_learns_as_if_alone(data):
    torch.manual_seed(1)
    head = BatchedLinearHead(12, 7, LRS).double()
    before, layers = head.weight.std(), copies(head)
    scale = 4.0  # batch / 256
    together = torch.optim.SGD(head.parameters(), lr=scale, momentum=0.9)
    groups = [
        dict(params=layer.parameters(), lr=scale * lr)
        for layer, lr in zip(layers, LRS)
    ]
    alone = torch.optim.SGD(groups, momentum=0.9)
    for _ in range(5):
        for x, y in zip(*data):
            entropies = [F.cross_entropy(layer(x), y) for layer in layers]
            losses = head.loss(x, y)
            best = losses['best_cross_entropy']
            torch.testing.assert_close(best, min(entropies).detach())
            for optimizer, loss in (
                (together, losses['loss']),
                (alone, sum(entropies)),
            ):
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    assert head.weight[3].std() > 10 * before
    for *ours, layer in zip(head.weight, head.bias, layers):
        torch.testing.assert_close(
            ours, [layer.weight, layer.bias], rtol=1e-5, atol=1e-8
        )


def test_places(data):
    x, y = data[0][0], data[1][0]
    head = BatchedLinearHead(12, 7, LRS, init_std=1.0).double()
    scores = torch.stack([layer(x) for layer in copies(head)])
    torch.testing.assert_close(head(x), scores)
    order = scores.argsort(dim=2, descending=True)  # (H, B, C)
    expected = (order == y[:, None]).nonzero()[:, 2].view(len(LRS), -1)
    assert torch.equal(head.places(x, y), expected.T)
    assert len(expected.unique()) > 3


def test_places_of_equal_and_broken_scores():
    head = BatchedLinearHead(1, 4, [1.0])
    head.weight.data.zero_()
    x, y = torch.ones(4, 1), torch.arange(4)
    # Of equal scores the first one wins, as argmax has it.
    assert head.places(x, y).flatten().tolist() == [0, 1, 2, 3]
    head.bias.data.fill_(float('nan'))
    assert head.places(x, y).flatten().tolist() == [3, 3, 3, 3]


def test_full_precision_under_autocast(data):
    x, y = data[0][0].bfloat16(), data[1][0]
    head = BatchedLinearHead(12, 7, LRS)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        scores, loss = head(x), head.loss(x, y)['loss']
    torch.testing.assert_close(scores, head(x.float()))
    torch.testing.assert_close(loss, head.loss(x.float(), y)['loss'])
