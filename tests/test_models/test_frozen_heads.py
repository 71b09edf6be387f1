# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Heads of the frozen protocols equal plain computations."""

from types import SimpleNamespace

import torch
from torch.nn import functional as F

from mmmoca.models import (
    AttentiveHead,
    LinearDepthHead,
    linear_segmentation_head,
)

BN = dict(type='BN')


def test_attention_is_that_of_all_keys_and_values():
    torch.manual_seed(0)
    head = AttentiveHead(128, 5, base_lrs=[1e-3, 1e-2])
    maps = torch.randn(3, 128, 2, 4)
    patches = maps.flatten(2).mT
    for part in head.classifiers:
        torch.nn.init.normal_(part.query)
        torch.nn.init.normal_(part.value.bias)
    logits = head(maps)
    for index, part in enumerate(head.classifiers):
        q, k, v = (
            x.unflatten(-1, (2, 64)).transpose(-2, -3)
            for x in (
                part.query.expand(3, 1, -1),
                part.key(patches),
                part.value(patches),
            )
        )
        whole = F.scaled_dot_product_attention(q, k, v).flatten(1)
        torch.testing.assert_close(logits[:, index], part.fc(whole))
    labels = torch.tensor([0, 4, 2])
    losses = head.loss(maps, labels)
    losses['loss'].backward(retain_graph=True)
    # DDP waits for each parameter's gradient.
    assert all(p.grad is not None for p in head.parameters())
    each = [F.cross_entropy(logits[:, i], labels) for i in (0, 1)]
    torch.testing.assert_close(losses['loss'], sum(each))
    torch.testing.assert_close(
        losses['best_cross_entropy'], min(each).detach()
    )
    places = head.places(maps, labels)
    assert torch.equal(places == 0, logits.argmax(2) == labels[:, None])


def test_depth_and_its_loss():
    torch.manual_seed(0)
    head = LinearDepthHead(8, num_bins=16, norm_cfg=BN).train()
    torch.nn.init.normal_(head.bins.weight)
    maps = torch.randn(2, 8, 3, 4)
    truth = torch.rand(2, 1, 6, 8) * 12  # some are too far
    samples = [
        SimpleNamespace(gt_depth_map=SimpleNamespace(data=t)) for t in truth
    ]
    scores = head.bins(head.norm(maps)).relu() + 0.1
    depths = torch.linspace(0.001, 10, 16)[:, None, None]
    depth = (scores * depths).sum(1, keepdim=True) / scores.sum(1, True)
    torch.testing.assert_close(head((None, maps)), depth)
    with torch.autocast('cpu'):  # in which 9.98 m and 10 m are the same
        rounded = head((maps,))
    torch.testing.assert_close(rounded, depth, rtol=5e-3, atol=0)
    large = F.interpolate(depth, (6, 8), mode='bilinear')
    known = truth < 10
    g = (large[known] + 1e-3).log() - (truth[known] + 1e-3).log()
    expected = (g.var() + 0.15 * g.mean() ** 2).sqrt()
    loss = head.loss((maps,), samples, {})['loss_depth']
    torch.testing.assert_close(loss, expected)
    found = head.predict((maps,), [dict(img_shape=(6, 8))], {})
    torch.testing.assert_close(found, large)
    unknown = [
        SimpleNamespace(
            gt_depth_map=SimpleNamespace(data=torch.zeros(1, 6, 8))
        )
    ] * 2
    assert head.loss((maps,), unknown, {})['loss_depth'] == 0


def test_linear_layer_on_normalised_maps():
    torch.manual_seed(0)
    head = linear_segmentation_head([4, 6], BN, num_classes=3, in_index=[0, 1])
    maps = [torch.randn(2, 4, 5, 5), torch.randn(2, 6, 5, 5)]
    x = torch.cat(maps, dim=1)
    normed = (x - x.mean((0, 2, 3), True)) / (
        x.var((0, 2, 3), unbiased=False, keepdim=True) + 1e-5
    ).sqrt()
    torch.testing.assert_close(
        head.train()(maps), head.conv_seg(normed), rtol=1e-4, atol=1e-4
    )
