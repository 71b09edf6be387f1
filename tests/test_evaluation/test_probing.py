# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Probing on fixed features."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mmmoca.evaluation.probing import attentive_accuracy, linear_accuracy
from mmmoca.models import BatchedLinearHead


def _set(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=generator)
    feats = torch.randn(count, 6, generator=generator)
    return feats + 1.3 * F.one_hot(labels, 6), labels


def _one_rate(train, val, index, lrs, epochs, batch_size, seed):
    """Accuracy of one ordinary classifier, trained alone."""
    model = nn.Linear(6, 4)
    torch.manual_seed(seed)
    head = BatchedLinearHead(6, 4, lrs)
    model.weight.data = head.weight.data[index].clone()
    model.bias.data.zero_()
    lr = lrs[index] * batch_size / 256
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
    for epoch in range(epochs):
        for group in optimizer.param_groups:
            group['lr'] = (
                lr * (1 + torch.tensor(epoch / epochs * torch.pi).cos()) / 2
            ).item()
        for rows in torch.randperm(len(train[0])).split(batch_size):
            optimizer.zero_grad()
            F.cross_entropy(model(train[0][rows]), train[1][rows]).backward()
            optimizer.step()
    hits = model(val[0]).argmax(1) == val[1]
    return 100 * hits.double().mean().item()


def test_best_of_classifiers_trained_alone():
    """Against one learning rate after the other."""
    train, val = _set(90, 0), _set(200, 1)
    lrs = [1e-3, 0.1, 3.0, 300.0]
    how = dict(epochs=5, batch_size=16, seed=3)
    alone = [_one_rate(train, val, i, lrs, **how) for i in range(4)]
    assert len(set(alone)) == 4
    found = linear_accuracy(train, val, 4, base_lrs=lrs, **how)
    assert found['top1'] == pytest.approx(max(alone))
    assert found['base_lr'] == lrs[alone.index(max(alone))]


def _maps(count, seed):
    """One patch of an image tells its class: the mean hides it."""
    rng = np.random.default_rng(seed)
    labels = torch.from_numpy(rng.integers(0, 2, count))
    maps = rng.normal(0, 1, (count, 64, 3, 3))
    for x, label in zip(maps, labels.tolist()):
        row, column = rng.integers(0, 3, 2)
        x[:2, row, column] = 6, 4 * label - 2
    return torch.from_numpy(maps).half(), labels


def test_attention_finds_a_patch():
    found = attentive_accuracy(_maps(500, 0), _maps(100, 1), 2, 30, 128, 0)
    assert found['top1'] > 85 and found['base_lr'] in (1e-3, 2e-3, 5e-3, 1e-2)


def test_attention_needs_two_images():
    with pytest.raises(ValueError):
        attentive_accuracy(_maps(1, 0), _maps(4, 1), 2, 1, 128, 0)


@pytest.mark.parametrize('epochs', [1, 10, 30])
def test_rates_and_decays_of_attention(epochs, monkeypatch):
    """As CAPI's, from one step on: only biases do not decay."""
    steps = []

    class Spy(torch.optim.AdamW):
        def step(self):
            assert all(
                (group['weight_decay'] == 0) == (not p.any())
                for group in self.param_groups * (not steps)
                for p in group['params']
            )
            steps.append(self.param_groups[0]['lr'] / 1e-5 * 256 / 128)
            super().step()

    monkeypatch.setattr('torch.optim.AdamW', Spy)
    attentive_accuracy(_maps(12, 0), _maps(4, 1), 2, epochs, 128, 0)
    warmup = epochs // 10
    down = np.cos(np.linspace(0, np.pi, epochs - warmup + 1))[:-1] / 2 + 0.5
    expected = [(i + 1) / (warmup + 1) for i in range(warmup)] + [*down]
    assert steps == pytest.approx(expected, abs=0.1)
