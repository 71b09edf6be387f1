# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The pyramid against its formula."""

import pytest
import torch
from torch.nn import functional as F

from mmmoca.registry import MODELS


def build(channels=6, **options):
    torch.manual_seed(0)
    cfg = dict(in_channels=channels, **options)
    cfg['type'] = 'mmmoca.ViTFeaturePyramid'
    return MODELS.build(cfg).double()


def maps(count=4, channels=6, size=(4, 6)):
    generator = torch.Generator().manual_seed(1)
    shape = (count, 2, channels, *size)
    return list(torch.randn(shape, generator=generator, dtype=torch.float64))


def twice(x, deconvolution):
    """Each cell becomes 2 x 2 cells, each by a matrix of its own."""
    cells = torch.einsum('bchw,cdij->bdhiwj', x, deconvolution.weight)
    cells = cells.flatten(4, 5).flatten(2, 3)
    return cells + deconvolution.bias[:, None, None]


def expected(pyramid, inputs):
    first, norm, _, second = pyramid.scales[0]
    x = twice(inputs[0], first)
    mean = x.mean((0, 2, 3), keepdim=True)
    variance = x.var((0, 2, 3), keepdim=True, unbiased=False)
    x = F.gelu((x - mean) / (variance + norm.eps).sqrt())
    pooled = inputs[3].unflatten(3, (-1, 2)).unflatten(2, (-1, 2))
    return (
        twice(x, second),
        twice(inputs[1], pyramid.scales[1]),
        inputs[2],
        pooled.amax((3, 5)),
    )


def test_four_maps():
    pyramid, inputs = build(), maps()
    outputs = pyramid(inputs)
    assert [tuple(x.shape) for x in outputs] == [
        (2, 6, 16, 24),
        (2, 6, 8, 12),
        (2, 6, 4, 6),
        (2, 6, 2, 3),
    ]
    for ours, theirs in zip(outputs, expected(pyramid, inputs)):
        torch.testing.assert_close(ours, theirs)


def test_last_map_alone():
    pyramid, (x,) = build(), maps(1)
    outputs = pyramid((x,))
    for ours, theirs in zip(outputs, expected(pyramid, [x] * 4)):
        torch.testing.assert_close(ours, theirs)


def test_some_of_the_scales():
    pyramid, inputs = build(scales=(2, 0.5)), maps(2)
    outputs = pyramid(inputs)
    whole = build()
    whole.scales[1].load_state_dict(pyramid.scales[0].state_dict())
    theirs = expected(whole, [inputs[0], inputs[0], inputs[1], inputs[1]])
    torch.testing.assert_close(outputs[0], theirs[1])
    torch.testing.assert_close(outputs[1], theirs[3])
    with pytest.raises(ValueError, match=r'scales=\(8, 1\).*4, 2, 1, 0.5'):
        build(scales=(8, 1))


def test_norm():
    assert isinstance(build().scales[0][1], torch.nn.SyncBatchNorm)
    pyramid = build(norm_cfg=dict(type='GN', num_groups=2))
    assert isinstance(pyramid.scales[0][1], torch.nn.GroupNorm)


def test_parameters():
    """Three transposed convolutions and a norm."""
    count = sum(p.numel() for p in build().parameters())
    assert count == 3 * (6 * 6 * 4 + 6) + 2 * 6


@pytest.mark.parametrize('count', [0, 2, 5])
def test_other_numbers_of_maps(count):
    with pytest.raises(ValueError, match=f'got {count}: write out_indices'):
        build()(maps(count))
