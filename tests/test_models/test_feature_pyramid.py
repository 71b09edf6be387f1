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


def pooled(x, side):
    cells = x.unflatten(3, (-1, side)).unflatten(2, (-1, side))
    return cells.amax((3, 5))


def expected(pyramid, inputs):
    first, norm, _, second = pyramid.scales[0]
    x = twice(inputs[0], first)
    mean = x.mean((0, 2, 3), keepdim=True)
    variance = x.var((0, 2, 3), keepdim=True, unbiased=False)
    x = F.gelu((x - mean) / (variance + norm.eps).sqrt())
    return (
        twice(x, second),
        twice(inputs[1], pyramid.scales[1]),
        inputs[2],
        pooled(inputs[3], 2),
    )


@pytest.mark.parametrize('count', [4, 1])
def test_four_maps(count):
    """Of as many layers, or all of the last one."""
    pyramid, inputs = build(), maps(count)
    outputs = pyramid(inputs)
    sizes = [tuple(x.shape[2:]) for x in outputs]
    assert sizes == [(16, 24), (8, 12), (4, 6), (2, 3)]
    for ours, theirs in zip(outputs, expected(pyramid, inputs * (4 // count))):
        torch.testing.assert_close(ours, theirs)


def test_some_of_the_scales():
    pyramid, inputs = build(strides=(8, 32)), maps(2)
    outputs = pyramid(inputs)
    theirs = twice(inputs[0], pyramid.scales[0]), pooled(inputs[1], 2)
    torch.testing.assert_close(outputs, theirs)
    by_scales = build(scales=(2, 0.5))
    assert by_scales.strides == pyramid.strides
    torch.testing.assert_close(by_scales(inputs), outputs)


def test_patches_of_8_pixels():
    """The same strides, of a map that is twice as fine."""
    pyramid, inputs = build(patch_size=8), maps(4, size=(8, 12))
    theirs = (
        twice(inputs[0], pyramid.scales[0]),
        inputs[1],
        pooled(inputs[2], 2),
        pooled(inputs[3], 4),
    )
    torch.testing.assert_close(pyramid(inputs), theirs)


def test_strides_that_cannot_be_made():
    message = r'3.5.*write strides'
    with pytest.raises(ValueError, match=message):
        build(patch_size=14)
    pyramid = build(patch_size=14, strides=(3.5, 7, 14, 28))
    assert [type(scale) for scale in pyramid.scales] == [
        type(scale) for scale in build().scales
    ]
    with pytest.raises(ValueError, match='write strides'):
        build(scales=(8, 1))


def test_norm():
    assert isinstance(build().scales[0][1], torch.nn.SyncBatchNorm)
    pyramid = build(norm_cfg=dict(type='GN', num_groups=2))
    assert isinstance(pyramid.scales[0][1], torch.nn.GroupNorm)


@pytest.mark.parametrize('count', [0, 2, 5])
def test_other_numbers_of_maps(count):
    with pytest.raises(ValueError, match='out_indices'):
        build()(maps(count))
