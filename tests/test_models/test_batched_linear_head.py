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
    features = torch.randn(6, 20, 12)
    labels = torch.randint(7, (6, 20))
    return features, labels


def copies(head):
    """Each classifier as a layer of its own."""
    layers = []
    for weight, bias in zip(head.weight, head.bias):
        layer = nn.Linear(12, 7)
        layer.weight.data.copy_(weight.data)
        layer.bias.data.copy_(bias.data)
        layers.append(layer)
    return layers


def test_each_classifier_learns_as_if_alone(data):
    torch.manual_seed(1)
    head = BatchedLinearHead(12, 7, LRS).double()
    layers = [layer.double() for layer in copies(head)]
    scale = 4.0  # batch / 256
    together = torch.optim.SGD(head.parameters(), lr=scale, momentum=0.9)
    alone = [
        torch.optim.SGD(layer.parameters(), lr=scale * lr, momentum=0.9)
        for layer, lr in zip(layers, LRS)
    ]
    optimizers = [together, *alone]
    schedules = [
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
        for optimizer in optimizers
    ]
    for _ in range(5):
        for x, y in zip(data[0].double(), data[1]):
            together.zero_grad()
            head.loss(x, y)['loss'].backward()
            together.step()
            for layer, optimizer in zip(layers, alone):
                optimizer.zero_grad()
                F.cross_entropy(layer(x), y).backward()
                optimizer.step()
            for schedule in schedules:
                schedule.step()
    moved = BatchedLinearHead(12, 7, LRS).weight.std()
    assert head.weight[3].std() > 10 * moved
    for *ours, layer in zip(head.weight, head.bias, layers):
        torch.testing.assert_close(
            ours, [layer.weight, layer.bias], rtol=1e-6, atol=1e-9
        )


def test_scores_and_losses(data):
    x, y = data[0][0], data[1][0]
    head = BatchedLinearHead(12, 7, LRS)
    scores = torch.stack([layer(x) for layer in copies(head)])
    torch.testing.assert_close(head(x), scores)
    entropies = torch.stack([F.cross_entropy(s, y) for s in scores])
    losses = head.loss(x, y)
    expected = (entropies * torch.tensor(LRS)).sum()
    torch.testing.assert_close(losses['loss'], expected)
    torch.testing.assert_close(losses['best_cross_entropy'], entropies.min())
    assert not losses['best_cross_entropy'].requires_grad


def test_places(data):
    x, y = data[0][0], data[1][0]
    head = BatchedLinearHead(12, 7, LRS, init_std=1.0)
    places = head.places(x, y)
    order = head(x).argsort(dim=2, descending=True)  # (H, B, C)
    expected = (order == y[:, None]).nonzero()[:, 2].view(len(LRS), -1)
    assert torch.equal(places, expected.T)
    assert len(places.unique()) > 3


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
    assert scores.dtype == loss.dtype == torch.float32
    torch.testing.assert_close(scores, head(x.float()))
    torch.testing.assert_close(loss, head.loss(x.float(), y)['loss'])


@pytest.mark.parametrize(
    'classes, lrs, message',
    [
        (7, [], 'base_lrs must be'),
        (7, [0.1, 0.0], 'base_lrs must be'),
        (7, [-1.0], 'base_lrs must be'),
        (1, LRS, 'at least two classes'),
    ],
)
def test_bad_heads(classes, lrs, message):
    with pytest.raises(ValueError, match=message):
        BatchedLinearHead(12, classes, lrs)
