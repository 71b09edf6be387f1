# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The transforms' random draws, and whole views, equal torchvision's."""

import numpy as np
import pytest
import torch
import torchvision.transforms as T
import torchvision.transforms.functional as tv
from mmcv.transforms import Compose
from mmengine import Config
from mmengine.registry import DefaultScope
from mmpretrain.registry import TRANSFORMS
from PIL import Image, ImageFilter, ImageOps
from scipy.stats import ks_2samp

from mmmoca.datasets import ColorJitter, RandomResizedCrop

from ..helpers.images import CONFIGS
from ..helpers.photos import photo


@pytest.fixture(autouse=True)
def seeds():
    np.random.seed(0)
    torch.manual_seed(0)


def test_crop_is_the_resized_box():
    crop = RandomResizedCrop((48, 64), crop_ratio_range=(0.2, 1.0))
    img = photo()
    np.random.seed(3)
    top, left, height, width = crop.rand_crop_params(img)
    np.random.seed(3)
    results = crop({'img': img})
    box = Image.fromarray(img).crop((left, top, left + width, top + height))
    expected = np.asarray(box.resize((64, 48), Image.Resampling.BILINEAR))
    np.testing.assert_allclose(results['img'], expected, atol=1)
    assert results['img_shape'] == (48, 64)


def test_jitter_applies_the_drawn_amounts_in_the_drawn_order():
    jitter = ColorJitter(0.4, 0.4, 0.2, 0.1)
    names = ('brightness', 'contrast', 'saturation', 'hue')
    img, orders = photo(), set()
    for seed in range(12):
        np.random.seed(seed)
        order, *amounts = jitter._rand_params()
        expected = Image.fromarray(img[..., ::-1])
        for i in order:
            adjust = getattr(tv, f'adjust_{names[i]}')
            expected = adjust(expected, amounts[i])
        np.random.seed(seed)
        out = jitter({'img': img.copy()})['img'].astype(float)
        delta = out - np.asarray(expected)[..., ::-1]
        assert np.abs(delta).mean() < 1.5
        orders.add(tuple(order))
    assert len(orders) > 6


def paper_view(blur, solarize, size):
    """Return the view of the paper's listing, before normalisation."""

    def pil_blur(img):
        radius = np.random.uniform(0.1, 2.0)
        return img.filter(ImageFilter.GaussianBlur(radius))

    return T.Compose(
        [
            T.RandomResizedCrop(size, scale=(0.2, 1.0)),
            T.RandomApply([T.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
            T.RandomGrayscale(p=0.2),
            T.RandomApply([T.Lambda(pil_blur)], p=blur),
            T.RandomApply([T.Lambda(ImageOps.solarize)], p=solarize),
            T.RandomHorizontalFlip(),
        ]
    )


def statistics(views):
    """Return statistics, (N, 10), that a wrong pipeline would change."""
    x = np.stack([np.asarray(view) for view in views]).astype(np.float32)
    half = x.shape[2] // 2
    of_channels = np.hstack([x.mean(axis=(1, 2)), x.std(axis=(1, 2))])
    others = (
        np.abs(np.diff(x, axis=1)).mean(axis=(1, 2, 3)),  # sharpness
        np.abs(np.diff(x, axis=2)).mean(axis=(1, 2, 3)),
        (x.max(axis=3) - x.min(axis=3)).mean(axis=(1, 2)),  # colourfulness
        (x[:, :, :half] - x[:, :, half:]).mean(axis=(1, 2, 3)),  # flips
    )
    return np.column_stack([of_channels, *others])


@pytest.mark.slow
@pytest.mark.parametrize('number', [1, 2])
def test_views_of_the_config_are_those_of_the_paper(number):
    """Each statistic is compared over many views of one photograph."""
    config = CONFIGS / '_base_/datasets/imagenet_two-views.py'
    steps = Config.fromfile(config)[f'view_pipeline{number}']
    steps[0]['scale'] = 48
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        view = Compose(steps)
    img = photo(1)
    ours = [view({'img': img})['img'][..., ::-1] for _ in range(700)]
    reference = paper_view(*[(1.0, 0.0), (0.1, 0.2)][number - 1], size=48)
    pil = Image.fromarray(img[..., ::-1])
    theirs = [reference(pil) for _ in range(700)]
    ours, theirs = statistics(ours), statistics(theirs)
    found = [ks_2samp(a, b).pvalue for a, b in zip(ours.T, theirs.T)]
    assert min(found) > 1e-3, found
    assert (ours[:, 8] == 0).mean() == pytest.approx(0.2, abs=0.04)  # grey


@pytest.mark.parametrize('shape', [(30, 200), (200, 30), (3, 77), (91, 3)])
@pytest.mark.parametrize('kind', ['mmmoca.ResizeEdge', 'mmmoca.ResizeBands'])
def test_strips_are_cut_before_they_grow(shape, kind):
    """The central crop equals that of the whole resized image."""
    img = photo(0, 200, 200)[: shape[0], : shape[1]]
    step = dict(scale=64, interpolation='bicubic')
    if kind == 'mmmoca.ResizeEdge':
        step |= dict(edge='short', backend='pillow')
    crop = dict(type='mmpretrain.CenterCrop', crop_size=56)
    found, whole = (
        Compose(
            [TRANSFORMS.build(dict(step, type=t)), TRANSFORMS.build(crop)]
        )(dict(img=img))['img']
        for t in (kind, 'mmpretrain.ResizeEdge')
    )
    assert found.shape == (56, 56, 3)
    exact = min(shape) == 30 and kind == 'mmmoca.ResizeEdge'
    np.testing.assert_allclose(found, whole, atol=0 if exact else 2)
    strip = dict(img=np.zeros((1, 6000, 3), np.uint8))
    assert TRANSFORMS.build(dict(step, type=kind))(strip)['img'].size < 1e6
