# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Transforms for the two-view augmentation, and one for evaluation.

Each replaces the transform of the same name in MMPreTrain or MMCV, mostly for
speed. The configs take the other augmentations, such as flip and
``RandomApply``, from these packages.
All images are BGR, as MMCV loads them.
"""

import numpy as np
from mmcv.transforms import BaseTransform
from mmcv.transforms.utils import cache_randomness
from mmpretrain.datasets.transforms import ColorJitter as _ColorJitter
from mmpretrain.datasets.transforms import GaussianBlur as _GaussianBlur
from mmpretrain.datasets.transforms import (
    RandomResizedCrop as _RandomResizedCrop,
)
from mmpretrain.datasets.transforms import ResizeEdge as _ResizeEdge

from mmmoca.registry import TRANSFORMS

from . import functional as F


def _check_colour(transform: BaseTransform, img: np.ndarray) -> None:
    if img.dtype != np.uint8 or img.shape[2:] != (3,):
        raise ValueError(
            f'{type(transform).__name__} needs uint8 images of shape '
            f'(H, W, 3) but got {img.dtype} of shape {img.shape}: load with '
            "color_type='color', or use mmmoca.BandJitter"
        )


@TRANSFORMS.register_module()
class RandomResizedCrop(_RandomResizedCrop):
    """Crop a random box and resize it with PIL's antialiasing.

    Boxes follow torchvision's distribution. Images may have any number of
    channels.

    **Required Keys:** ``img``, (H, W) or (H, W, C), uint8 or float32.

    **Modified Keys:** ``img``, ``img_shape``.

    Args:
        *args: Arguments of MMPreTrain's ``RandomResizedCrop``. ``scale`` is
            the height and width of the output in pixels, or one number.
        interpolation (str): ``'bilinear'`` or ``'bicubic'``.
        **kwargs: Further arguments of that class: ``crop_ratio_range``, the
            area of the box as a fraction of the image's;
            ``aspect_ratio_range``, the box's width over its height;
            ``max_attempts``, the number of draws before a central crop is
            used.

    Raises:
        ValueError: At build time, for another interpolation or a range
            that is not (min, max).
        TypeError: For images that are neither uint8 nor float32.
    """

    def __init__(
        self, *args, interpolation: str = 'bilinear', **kwargs
    ) -> None:
        F.check_interpolation(interpolation)
        super().__init__(*args, interpolation=interpolation, **kwargs)
        least, most = self.crop_ratio_range
        narrow, wide = self.aspect_ratio_range
        if not (0 <= least <= most <= 1 and most > 0 and 0 < narrow <= wide):
            raise ValueError(
                f'crop_ratio_range={self.crop_ratio_range} must be two '
                'fractions of the area, and aspect_ratio_range='
                f'{self.aspect_ratio_range} two ratios above 0, each with the '
                'smaller number first'
            )

    def transform(self, results: dict) -> dict:
        """Crop and resize ``results['img']``."""
        img = results['img']
        top, left, height, width = self.rand_crop_params(img)
        box = img[top : top + height, left : left + width]
        results['img'] = F.resize(box, tuple(self.scale), self.interpolation)
        results['img_shape'] = tuple(self.scale)
        return results


@TRANSFORMS.register_module()
class ResizeEdge(_ResizeEdge):
    """Resize one edge to a length; keep only the middle of a thin strip.

    This is MMPreTrain's ``ResizeEdge`` for use before a central crop. A strip
    of 1 x 6000 pixels would grow to a million columns, of which the crop keeps
    a few hundred. So if an image has to grow, its longer side is first cut to
    at most eight times the shorter side.

    **Required Keys:** ``img``, (H, W) or (H, W, C).

    **Modified Keys:** ``img``, ``img_shape``; ``scale`` and ``scale_factor``
    are added, width first.

    Args:
        *args: Arguments of MMPreTrain's ``ResizeEdge``. ``scale`` is the
            length of the edge in pixels.
        **kwargs: Further arguments of that class: ``edge`` (only ``'short'``
            cuts strips), ``backend`` and ``interpolation``.
    """

    def transform(self, results: dict) -> dict:
        """Cut and resize ``results['img']``."""
        img = results['img']
        short, long = sorted(img.shape[:2])
        if self.edge == 'short' and short < self.scale and long > 8 * short:
            kept = 8 * short + long % 2  # both ends lose equally much
            start = (long - kept) // 2
            part = slice(start, start + kept)
            results['img'] = (
                img[:, part] if img.shape[1] == long else img[part]
            )
        return super().transform(results)


@TRANSFORMS.register_module()
class ColorJitter(_ColorJitter):
    """Change brightness, contrast, saturation and hue in random order.

    **Required Keys:** ``img``, BGR, (H, W, 3), uint8.

    **Modified Keys:** ``img``.

    Args:
        brightness (float | Sequence[float]): The factor is drawn from [1 -
            brightness, 1 + brightness], or from the given (min, max).
        contrast (float | Sequence[float]): As for ``brightness``.
        saturation (float | Sequence[float]): As for ``brightness``.
        hue (float | Sequence[float]): The shift is drawn from [-hue, hue],
            with a hue of at most 0.5 (half the circle), or from the given
            (min, max).

    Raises:
        ValueError: For images that are not uint8 with three channels.
    """

    def transform(self, results: dict) -> dict:
        """Change the colours of ``results['img']``."""
        img = results['img']
        _check_colour(self, img)
        steps = (
            F.adjust_brightness,
            F.adjust_contrast,
            F.adjust_saturation,
            F.adjust_hue,
        )
        order, *amounts = self._rand_params()
        for i in order:
            if amounts[i] is not None:
                img = steps[i](img, amounts[i])
        results['img'] = img
        return results


@TRANSFORMS.register_module()
class RandomGrayscale(BaseTransform):
    """Replace the colours with grey, in three equal channels.

    **Required Keys:** ``img``, BGR, (H, W, 3), uint8.

    **Modified Keys:** ``img``.

    Args:
        prob (float): Probability of the replacement, in [0, 1].

    Raises:
        ValueError: At build time, for a probability outside [0, 1]; later,
            for images that are not uint8 with three channels.
    """

    def __init__(self, prob: float = 0.2) -> None:
        if not 0 <= prob <= 1:
            raise ValueError(f'prob must be in [0, 1] but got {prob}')
        self.prob = prob

    @cache_randomness
    def _draw(self) -> bool:
        return np.random.rand() < self.prob

    def transform(self, results: dict) -> dict:
        """Perhaps make ``results['img']`` grey."""
        _check_colour(self, results['img'])
        if self._draw():
            results['img'] = F.grayscale(results['img'])
        return results


@TRANSFORMS.register_module()
class GaussianBlur(_GaussianBlur):
    """Blur as PIL does; the arguments are MMPreTrain's.

    Images may have any number of channels.

    **Required Keys:** ``img``, (H, W) or (H, W, C), uint8 or float32.

    **Modified Keys:** ``img``.

    Args:
        *args: Arguments of MMPreTrain's ``GaussianBlur``. ``radius`` is the
            standard deviation in pixels, ``prob`` the probability of blurring.
        **kwargs: Further arguments of that class. ``magnitude_range=(0.1,
            2.0), magnitude_std='inf'`` draws the standard deviation uniformly
            from that range. With the default ``magnitude_std=0``, the
            standard deviation is always the upper end of the range.

    Raises:
        ValueError: At build time, for a range that is negative or has its
            larger number first.
    """

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        low, high = self.magnitude_range or (0, 0)
        if not 0 <= low <= high:
            raise ValueError(
                'magnitude_range must be two numbers of 0 or more, the '
                f'smaller one first, but got {self.magnitude_range}'
            )

    def transform(self, results: dict) -> dict:
        """Perhaps blur ``results['img']``."""
        if self.random_disable():
            return results
        sigma = self.radius
        if sigma is None:
            sigma = self.random_magnitude()
        results['img'] = F.gaussian_blur(results['img'], sigma)
        return results
