# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Compare each operation on a batch with the CPU's on one image."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

from mmmoca.datasets import RandomResizedCrop
from mmmoca.datasets import functional as cpu
from projects.gpu_views import functional as F
from tests.helpers.photos import photo

IMAGES = [photo(seed) for seed in range(3)]
BATCH = torch.from_numpy(np.stack(IMAGES)).movedim(3, 1).float()
BLENDS = cpu.adjust_brightness, cpu.adjust_contrast, cpu.adjust_saturation


def differences(batched, expected):
    """Return the differences of each image, in grey levels."""
    expected = torch.from_numpy(np.stack(expected)).movedim(3, 1).float()
    assert torch.equal(batched, batched.round())
    return (batched - expected).flatten(1)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float16])
@pytest.mark.parametrize('size', [(64, 64), (48, 110)])
def test_boxes_are_resized_as_on_the_cpu(dtype, size):
    boxes = [(10, 20, 150, 200), (0, 0, 180, 240), (100, 150, 31, 67)]
    expected = [
        cpu.resize(img[top : top + height, left : left + width], size)
        for img, (top, left, height, width) in zip(IMAGES, boxes)
    ]
    canvases = torch.full((3, 200, 256, 3), 255, dtype=torch.uint8)
    canvases[:, :180, :240] = torch.from_numpy(np.stack(IMAGES))
    out = F.resize_boxes(canvases, torch.tensor(boxes), size, dtype)
    delta = differences(out, expected)
    # The CPU resizes rows and columns one after the other, and rounds between
    # these two passes.
    assert delta.abs().max() <= 1
    assert delta.abs().mean(dim=1).max() < 0.25


@pytest.mark.slow
def test_jitter_follows_each_image_s_own_order():
    orders = torch.tensor([*itertools.permutations(range(4))])
    generator = torch.Generator().manual_seed(0)
    factors = 0.6 + 0.8 * torch.rand(24, 3, generator=generator)
    hue = 0.2 * torch.rand(24, generator=generator) - 0.1
    steps, expected = (*BLENDS, cpu.adjust_hue), []
    for order, amounts, shift in zip(orders, factors, hue):
        img = IMAGES[0]
        for step in order.tolist():
            img = steps[step](img, [*amounts.tolist(), shift.item()][step])
        expected.append(img)
    batch = BATCH[:1].expand(24, -1, -1, -1)
    delta = differences(F.jitter(batch, orders, factors, hue), expected)
    assert delta.abs().mean(dim=1).max() < 1
    wrong = differences(
        F.jitter(batch, orders.flip(1), factors, hue), expected
    )
    assert wrong.abs().mean(dim=1).max() > 3


@pytest.mark.parametrize('sigmas', [(0, 0.3, 0.5), (2, 1, 4)])
def test_blur_is_that_of_the_cpu(sigmas):
    out = F.gaussian_blur(BATCH, torch.tensor(sigmas), 4.0)
    expected = [cpu.gaussian_blur(i, s) for i, s in zip(IMAGES, sigmas)]
    delta = differences(out, expected)
    assert delta.abs().max() <= 2
    # Many sums lie half-way between two grey levels.
    assert delta.abs().mean(dim=1).max() < 0.2


@pytest.mark.parametrize('shape', [(375, 500), (120, 300)])
def test_boxes_are_drawn_as_on_the_cpu(shape):
    np.random.seed(0)
    crop = RandomResizedCrop(224, (0.2, 1.0))
    img = np.empty((*shape, 3), dtype=np.uint8)
    theirs = np.array([crop.rand_crop_params(img) for _ in range(2000)])
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand(4000, 22, generator=generator)
    ours = F.draw_boxes(
        torch.tensor(shape).repeat(4000, 1),
        uniform,
        crop.crop_ratio_range,
        crop.aspect_ratio_range,
    ).numpy()
    assert (ours >= 0).all()
    assert (ours[:, :2] + ours[:, 2:] <= shape).all()
    for a, b in zip(ours.T, theirs.T):
        assert ks_2samp(a, b).pvalue > 1e-3
