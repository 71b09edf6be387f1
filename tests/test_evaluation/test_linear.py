# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Linear probing on fixed features."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mmmoca.evaluation import LinearProbeAccuracy
from mmmoca.evaluation.features import FeatureShard
from mmmoca.evaluation.protocols.linear import linear_predictions
from mmmoca.models import BatchedLinearHead


def _set(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=generator)
    feats = torch.randn(count, 6, generator=generator)
    return feats + 1.3 * F.one_hot(labels, 6), labels


def _one_rate(train, val, index, lrs, epochs, batch_size, seed):
    """Return the accuracy of one ordinary classifier, trained alone."""
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
    """Classifiers trained together equal those trained one by one."""
    train, val = _set(90, 0), _set(200, 1)
    lrs = [1e-3, 0.1, 3.0, 300.0]
    how = dict(epochs=5, batch_size=16, seed=3)
    alone = [_one_rate(train, val, i, lrs, **how) for i in range(4)]
    assert len(set(alone)) == 4
    shards = (
        FeatureShard(torch.arange(len(x)), x, y) for x, y in (train, val)
    )
    torch.manual_seed(99)
    before, metric = torch.get_rng_state(), LinearProbeAccuracy()
    metric.process(None, linear_predictions(*shards, 4, base_lrs=lrs, **how))
    assert torch.equal(torch.get_rng_state(), before)
    found = metric.compute_metrics(metric.results)
    assert found['top1'] == pytest.approx(max(alone))
    assert found['base_lr'] == lrs[alone.index(max(alone))]
