# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Each operation equals that of torchvision or PIL, for fixed amounts."""

import numpy as np
import pytest
import torchvision.transforms.functional as tv
from PIL import Image, ImageFilter

from mmmoca.datasets import GaussianBlur
from mmmoca.datasets import functional as F

from ..helpers.photos import photo


def to_pil(img):
    return Image.fromarray(img[..., ::-1])


def assert_near(ours, theirs, most=0, mean=0.0):
    """Compare a BGR image with one of PIL: each value, and the mean error."""
    delta = np.abs(ours.astype(float) - np.asarray(theirs)[..., ::-1])
    assert delta.max() <= most and delta.mean() <= mean


@pytest.fixture(params=['photo', 'noise'])
def img(request):
    if request.param == 'photo':
        return photo()
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (90, 120, 3), dtype=np.uint8)


@pytest.mark.parametrize('factor', [0.0, 0.6, 0.83, 1.0, 1.3])
def test_adjustments_are_those_of_pil(img, factor):
    for name, most, mean in (
        ('brightness', 0, 0),
        ('contrast', 0, 0),
        ('saturation', 1, 0.02),  # rounding would give 0.4
    ):
        ours, theirs = (
            getattr(library, f'adjust_{name}') for library in (F, tv)
        )
        assert_near(ours(img, factor), theirs(to_pil(img), factor), most, mean)


@pytest.mark.parametrize('shift', [-0.1, -0.03, 0.0, 0.07, 0.1])
def test_hue_agrees_with_pil(shift):
    img = photo()
    theirs = np.asarray(tv.adjust_hue(to_pil(img), shift))[..., ::-1]
    delta, wrong = (
        F.adjust_hue(img, found).astype(float) - theirs
        for found in (shift, shift + 0.03)
    )
    # Both store the hue in 8 bits, so neither is exact.
    assert np.abs(delta).mean() < 1.2
    assert np.abs(delta.mean(axis=(0, 1))).max() < 0.6
    assert np.abs(wrong).mean() > 3


def test_grayscale_is_that_of_pil(img):
    assert_near(F.grayscale(img), tv.to_grayscale(to_pil(img), 3), 1, 0.01)


@pytest.mark.parametrize('sigma', [0.1, 0.5, 1.2, 2.0])
def test_blur_is_that_of_pil(img, sigma):
    theirs = to_pil(img).filter(ImageFilter.GaussianBlur(sigma))
    ours = GaussianBlur(radius=sigma, prob=1.0)(dict(img=img))['img']
    # Many sums end in one half, so the mean is compared more strictly.
    assert_near(ours, theirs, 2, 0.13)


@pytest.mark.parametrize('size', [(48, 96), (300, 260)])
@pytest.mark.parametrize('interpolation', ['bilinear', 'bicubic'])
def test_resize_is_that_of_pil(img, size, interpolation):
    method = Image.Resampling[interpolation.upper()]
    theirs = to_pil(img).resize(size[::-1], method)
    assert_near(F.resize(img, size, interpolation), theirs, 2, 0.06)


@pytest.mark.parametrize(
    'shape, dtype', [((), np.uint8), ((1,), np.float32), ((13,), np.uint8)]
)
def test_channels_are_treated_alike(shape, dtype):
    rng = np.random.default_rng(0)
    img = rng.integers(0, 256, (50, 70, *shape)).astype(dtype)
    for operation, size in (
        (lambda img: F.gaussian_blur(img, 1.3), (50, 70)),
        (lambda img: F.resize(img, (24, 32)), (24, 32)),
    ):
        out = operation(img)
        assert out.shape == (*size, *shape) and out.dtype == dtype
        assert out.flags.c_contiguous
        for i in np.ndindex(shape):
            alone = operation(np.ascontiguousarray(img[(..., *i)]))
            np.testing.assert_allclose(out[(..., *i)], alone, atol=1)


def test_resize_takes_flipped_images():
    img = photo()
    flipped = F.resize(img[:, ::-1], (40, 50))
    delta = flipped[:, ::-1].astype(int) - F.resize(img, (40, 50))
    assert np.abs(delta).max() <= 1
