# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Each operation on a batch against the CPU's on one image."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp
from sklearn.datasets import load_sample_image

from mmmoca.datasets import RandomResizedCrop
from mmmoca.datasets import functional as cpu
from mmmoca.models import view_functional as F

from ..test_datasets.photos import photo

BLENDS = ('adjust_brightness', 'adjust_contrast', 'adjust_saturation')


@pytest.fixture(scope='module')
def images():
    """Two photographs and a drawn one, BGR, of one size."""
    names = ('china.jpg', 'flower.jpg')
    photos = [load_sample_image(name)[:180, 200:440, ::-1] for name in names]
    return [*map(np.ascontiguousarray, photos), photo()]


def batch(images):
    return torch.stack([torch.from_numpy(i) for i in images]).movedim(3, 1)


def differences(batched, expected):
    """Of each image, in grey levels."""
    expected = batch(expected).float()
    assert batched.dtype == torch.float32
    assert torch.equal(batched, batched.round())
    return (batched - expected).flatten(1)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float16])
@pytest.mark.parametrize('size', [(64, 64), (48, 110)])
def test_boxes_are_resized_as_on_the_cpu(images, dtype, size):
    boxes = [(10, 20, 150, 200), (0, 0, 180, 240), (100, 150, 31, 67)]
    expected = [
        cpu.resize(img[top : top + height, left : left + width], size)
        for img, (top, left, height, width) in zip(images, boxes)
    ]
    canvases = torch.full((3, 200, 256, 3), 255, dtype=torch.uint8)
    canvases[:, :180, :240] = torch.stack([*map(torch.from_numpy, images)])
    out = F.resize_boxes(canvases, torch.tensor(boxes), size, dtype)
    delta = differences(out, expected)
    # The CPU's kernel rounds between rows and columns.
    assert delta.abs().max() <= 1
    assert delta.abs().mean(dim=1).max() < 0.25
    assert delta.mean(dim=1).abs().max() < 0.03


@pytest.mark.parametrize('dtype', [torch.float32, torch.float16])
def test_nothing_comes_in_from_outside_of_the_box(dtype):
    canvas = torch.full((1, 40, 50, 3), 255, dtype=torch.uint8)
    canvas[:, 7:30, 11:44] = 201
    box = torch.tensor([[7, 11, 23, 33]])
    for size in ((10, 12), (64, 64)):
        out = F.resize_boxes(canvas, box, size, dtype)
        assert (out == 201).all()


@pytest.mark.parametrize('number, name', [*enumerate(BLENDS)])
@pytest.mark.parametrize('factor', [0.0, 0.6, 0.83, 1.0, 1.3, 2.5])
def test_blends_are_those_of_the_cpu(images, number, name, factor):
    factors = torch.ones(3, 3)
    factors[:, number] = factor
    out = F.jitter(
        batch(images).float(), torch.arange(4).repeat(3, 1), factors
    )
    delta = differences(out, [getattr(cpu, name)(i, factor) for i in images])
    assert delta.abs().max() <= (2 if number == 2 else 0)
    assert delta.abs().mean() < 0.005


@pytest.mark.parametrize('shift', [-0.5, -0.1, -0.03, 0.0, 0.07, 0.1])
def test_hue_agrees_with_the_cpu(images, shift):
    out = F.shift_hue(batch(images).float(), torch.full((3,), shift))
    expected = [cpu.adjust_hue(img, shift) for img in images]
    delta = differences(out, expected)
    # The CPU keeps the hue in 8 bits on the way.
    assert delta.abs().mean(dim=1).max() < 0.8
    assert delta.mean(dim=1).abs().max() < 0.4
    if shift == 0:
        assert torch.equal(out, batch(images).float())
    other = F.shift_hue(batch(images).float(), torch.full((3,), shift + 0.03))
    assert (other - out).abs().mean() > 1


def test_jitter_follows_each_image_s_own_order(images):
    orders = torch.tensor([*itertools.permutations(range(4))])
    generator = torch.Generator().manual_seed(0)
    factors = 0.6 + 0.8 * torch.rand(24, 3, generator=generator)
    hue = 0.2 * torch.rand(24, generator=generator) - 0.1
    repeated = images[:1] * 24
    expected = []
    steps = [getattr(cpu, name) for name in BLENDS] + [cpu.adjust_hue]
    for order, amounts, shift in zip(orders, factors, hue):
        img = images[0]
        for step in order.tolist():
            img = steps[step](img, [*amounts.tolist(), shift.item()][step])
        expected.append(img)
    out = F.jitter(batch(repeated).float(), orders, factors, hue)
    delta = differences(out, expected)
    assert delta.abs().mean(dim=1).max() < 1
    assert delta.mean(dim=1).abs().max() < 0.5
    wrong = F.jitter(batch(repeated).float(), orders.flip(1), factors, hue)
    assert differences(wrong, expected).abs().mean(dim=1).max() > 3


def test_luminance_is_that_of_the_cpu(images):
    out = F.luminance(batch(images).float()).expand(-1, 3, -1, -1)
    delta = differences(out, [*map(cpu.grayscale, images)])
    assert delta.abs().max() <= 1
    assert delta.abs().mean() < 0.01
    with pytest.raises(ValueError, match="color_type='color'"):
        F.luminance(torch.zeros(2, 5, 8, 8))


@pytest.mark.parametrize('sigmas', [(0, 0.3, 0.5), (0.8, 1.2, 1.6), (2, 1, 4)])
def test_blur_is_that_of_the_cpu(images, sigmas):
    out = F.gaussian_blur(batch(images).float(), torch.tensor(sigmas), 4.0)
    expected = [cpu.gaussian_blur(i, s) for i, s in zip(images, sigmas)]
    delta = differences(out, expected)
    assert delta.abs().max() <= 2
    assert delta.abs().mean(dim=1).max() < 0.2  # many sums end in one half


def test_blur_needs_no_more_taps_than_its_widest(images):
    x, sigma = batch(images).float(), torch.tensor([0.2, 1.4, 2.0])
    narrow, wide = (F.gaussian_blur(x, sigma, most) for most in (2.0, 5.0))
    assert (narrow - wide).abs().max() <= 1
    assert (narrow - wide).abs().mean() < 0.01


@pytest.mark.parametrize('threshold', [0, 128, 256])
def test_solarize(images, threshold):
    thresholds = torch.full((3,), float(threshold))
    out = F.solarize(batch(images).float(), thresholds)
    expected = [np.where(i < threshold, i, 255 - i) for i in images]
    assert not differences(out, expected).any()


@pytest.mark.parametrize('shape', [(375, 500), (120, 300), (300, 100)])
@pytest.mark.parametrize('attempts', [10, 0])
def test_boxes_are_drawn_as_on_the_cpu(shape, attempts):
    np.random.seed(0)
    crop = RandomResizedCrop(224, (0.2, 1.0), max_attempts=attempts)
    img = np.empty((*shape, 3), dtype=np.uint8)
    theirs = np.array([crop.rand_crop_params(img) for _ in range(2000)])
    sizes = torch.tensor(shape).repeat(4000, 1)
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand(4000, 2 * attempts + 2, generator=generator)
    ours = F.draw_boxes(
        sizes, uniform, crop.crop_ratio_range, crop.aspect_ratio_range
    )
    ours = ours.double().numpy()
    assert (ours == ours.round()).all() and (ours >= 0).all()
    assert (ours[:, :2] + ours[:, 2:] <= shape).all()
    if not attempts:
        assert (ours == theirs[0]).all()
        return
    for boxes in (ours, theirs):
        assert len(np.unique(boxes, axis=0)) > 1000
    for a, b in zip(described(ours), described(theirs)):
        assert ks_2samp(a, b).pvalue > 1e-3


def described(boxes):
    """Corner, sides, area and aspect ratio."""
    return [*boxes.T, boxes[:, 2] * boxes[:, 3], boxes[:, 3] / boxes[:, 2]]


def test_numbers_next_to_one_stay_inside():
    uniform = torch.full((300, 6), 1 - 2**-24)
    sizes = torch.arange(300, 600)[:, None].expand(-1, 2)
    boxes = F.draw_boxes(sizes, uniform, (0.2, 0.5), (1.0, 1.0))
    assert (boxes[:, :2] + boxes[:, 2:] == sizes).all()
