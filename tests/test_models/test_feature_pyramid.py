# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The pyramid follows its formula."""

import pytest
import torch
from torch.nn import functional as F

from mmmoca.registry import MODELS


def build(**options):
    torch.manual_seed(0)
    cfg = dict(type='mmmoca.ViTFeaturePyramid', in_channels=6, **options)
    return MODELS.build(cfg).double()


def maps(count, size=(4, 6)):
    generator = torch.Generator().manual_seed(1)
    shape = (count, 2, 6, *size)
    return list(torch.randn(shape, generator=generator, dtype=torch.float64))


def twice(x, deconvolution):
    """Turn each cell into 2 x 2 cells, each with a matrix of its own."""
    cells = torch.einsum('bchw,cdij->bdhiwj', x, deconvolution.weight)
    cells = cells.flatten(4, 5).flatten(2, 3)
    return cells + deconvolution.bias[:, None, None]


def four_times(x, scale):
    first, norm, _, second = scale
    x = twice(x, first)
    mean = x.mean((0, 2, 3), keepdim=True)
    variance = x.var((0, 2, 3), keepdim=True, unbiased=False)
    x = F.gelu((x - mean) / (variance + norm.eps).sqrt())
    return twice(x, second)


def pooled(x, side):
    cells = x.unflatten(3, (-1, side)).unflatten(2, (-1, side))
    return cells.amax((3, 5))


@pytest.mark.parametrize('count', [4, 1])
def test_four_maps(count):
    """The maps come from four layers, or all of them from the last one."""
    pyramid, inputs = build(), maps(count)
    assert isinstance(pyramid.scales[0][1], torch.nn.SyncBatchNorm)
    first, second, third, last = inputs * (4 // count)
    expected = (
        four_times(first, pyramid.scales[0]),
        twice(second, pyramid.scales[1]),
        third,
        pooled(last, 2),
    )
    torch.testing.assert_close(pyramid(inputs), expected)


def test_some_of_the_scales_of_patches_of_8_pixels():
    pyramid = build(patch_size=8, strides=(4, 32))
    first, last = inputs = maps(2, size=(8, 12))
    expected = twice(first, pyramid.scales[0]), pooled(last, 4)
    torch.testing.assert_close(pyramid(inputs), expected)


def test_norm():
    pyramid = build(norm_cfg=dict(type='GN', num_groups=2))
    assert isinstance(pyramid.scales[0][1], torch.nn.GroupNorm)
