# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Transforms work on any number of channels.

test_functional tests blurring and resizing. projects/multispectral trains on
files with 13 channels.
"""

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from mmmoca.datasets import BandJitter, ResizeBands, functional


@pytest.fixture
def bands():
    """Draw 13 channels, (40, 60, 13), each with its own level and spread."""
    rng = np.random.default_rng(0)
    level, spread = rng.uniform(-500, 3000, 13), rng.uniform(10, 900, 13)
    img = rng.standard_normal((40, 60, 13)) * spread + level
    return img.astype(np.float32)


def seeded(transform, img):
    np.random.seed(0)
    torch.manual_seed(0)
    return transform(dict(img=img.copy()))['img']


@pytest.mark.parametrize(
    ('scale', 'shape'), [(24, (24, 36)), ((20, 30), (30, 20))]
)
def test_resizing_keeps_its_record(bands, scale, shape):
    """The pixels are PIL's, as test_functional checks."""
    results = ResizeBands(scale, interpolation='bicubic')(dict(img=bands))
    expected = functional.resize(bands, shape, 'bicubic')
    np.testing.assert_array_equal(results['img'], expected)
    assert results['img_shape'] == shape
    assert results['scale_factor'] == (shape[1] / 60, shape[0] / 40)


@pytest.mark.parametrize('per_band', [True, False])
def test_jitter_is_the_formula_on_each_channel(bands, per_band):
    jitter = BandJitter(0.5, 0.4, 0.3, per_band=per_band)
    np.random.seed(0)
    draws = jitter._draw(13)
    out = seeded(jitter, bands)
    assert out.dtype == np.float32
    for i, (brightness, contrast, gain, noise) in enumerate(zip(*draws)):
        x = bands[..., i].astype(float)
        shifted = x.mean() + contrast * (x - x.mean()) + brightness * x.std()
        np.testing.assert_allclose(
            out[..., i], gain * shifted, rtol=1e-4, atol=0.01
        )
        assert noise == 0
    for draw in draws[:3]:
        assert len(np.unique(draw)) == (13 if per_band else 1)


def test_jitter_draws_from_the_ranges():
    jitter = BandJitter(0.5, 0.4, 0.3, 0.2)
    np.random.seed(0)
    draws = np.stack([jitter._draw(13) for _ in range(200)])  # (200, 4, 13)
    ranges = ((-0.5, 0.5), (0.6, 1.4), (0.7, 1.3), (0, 0.2))
    for (low, high), values in zip(ranges, draws.transpose(1, 0, 2)):
        values = (values.ravel() - low) / (high - low)
        assert kstest(values, 'uniform').pvalue > 1e-3


def test_noise_is_normal_and_of_the_drawn_size(bands):
    jitter = BandJitter(noise=0.5)
    np.random.seed(0)
    *_, noise = jitter._draw(13)
    added = seeded(jitter, bands) - bands
    scaled = added / (bands.std(axis=(0, 1)) * noise)
    for band in range(13):
        assert kstest(scaled[..., band].ravel(), 'norm').pvalue > 1e-3
    correlation = np.corrcoef(scaled.reshape(-1, 13).T) - np.eye(13)
    assert np.abs(correlation).max() < 0.1


def test_jitter_keeps_shape_and_type(bands):
    jitter = BandJitter(0.5, 0.4, 0.3, 0.2)
    assert seeded(jitter, bands[..., 0]).shape == (40, 60)
    np.testing.assert_array_equal(seeded(BandJitter(), bands), bands)
    flat = np.full((8, 8, 2), 100, np.uint8)
    np.testing.assert_array_equal(seeded(BandJitter(0.5, 0.4), flat), flat)
    bright = np.random.default_rng(0).integers(200, 256, (8, 8, 5), np.uint8)
    gain = BandJitter(gain=1.0)
    np.random.seed(0)
    factor = gain._draw(5)[2]
    expected = np.rint(bright * factor.astype(np.float32)).clip(0, 255)
    np.testing.assert_array_equal(seeded(gain, bright), expected)
    assert (expected == 255).any()
