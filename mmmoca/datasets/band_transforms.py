# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Transforms for images with any number of channels."""

import numpy as np
import torch
from mmcv.transforms import BaseTransform
from mmcv.transforms.utils import cache_randomness

from mmmoca.registry import TRANSFORMS

from . import functional as F
from .transforms import ResizeEdge


def _mean(x: np.ndarray) -> np.ndarray:
    """Average each channel, (H, W, C) -> (C,).

    Averaging over H first is many times faster than over H and W at once.
    """
    rows = x.reshape(len(x), -1).mean(axis=0, dtype=np.float64)
    return rows.reshape(x.shape[1:]).mean(axis=0)


@TRANSFORMS.register_module()
class BandJitter(BaseTransform):
    """Change level, contrast, gain and noise of each channel.

    It replaces :class:`ColorJitter` for images whose channels are not
    colours. With m and s the mean and standard deviation of a channel in the
    image, its pixels x become::

        gain * (m + contrast * (x - m) + s * (brightness + noise * n))

    where n is a standard normal number, drawn for each pixel. x may have any
    unit, but ``gain`` assumes that x is 0 where no light was measured.
    Results are clipped for integer images only.

    **Required Keys:** ``img``, (H, W) or (H, W, C), uint8, uint16 or floats.

    **Modified Keys:** ``img``, of the same type.

    Args:
        brightness (float): Shift in standard deviations, drawn from
            [-brightness, brightness].
        contrast (float): Factor of the deviation from the mean, drawn from
            [1 - contrast, 1 + contrast].
        gain (float): Factor, drawn from [1 - gain, 1 + gain].
        noise (float): Factor of n, in standard deviations of the channel,
            drawn from [0, noise].
        per_band (bool): Draw separately for each channel, as when a sensor
            drifts. False draws once for all channels, as when the light
            changes, so that ``gain`` keeps the ratios between channels.

    Raises:
        ValueError: At build time, for a negative number, or a ``contrast`` or
            ``gain`` above 1.
    """

    def __init__(
        self,
        brightness: float = 0.0,
        contrast: float = 0.0,
        gain: float = 0.0,
        noise: float = 0.0,
        per_band: bool = True,
    ) -> None:
        self.amounts = dict(
            brightness=brightness, contrast=contrast, gain=gain, noise=noise
        )
        for name, amount in self.amounts.items():
            if amount < 0 or (name in ('contrast', 'gain') and amount > 1):
                wanted = 'between 0 and 1' if amount > 0 else '0 or more'
                raise ValueError(f'{name} must be {wanted} but got {amount}')
        self.per_band = per_band

    @cache_randomness
    def _draw(self, channels: int) -> tuple[np.ndarray, ...]:
        """Draw brightness, contrast, gain and noise of each channel, (C,)."""
        amounts = np.array([[*self.amounts.values()]]).T  # (4, 1)
        lows = np.array([[-1, -1, -1, 0]]).T
        count = channels if self.per_band else 1
        draws = amounts * np.random.uniform(lows, 1, (4, count))
        brightness, contrast, gain, noise = np.broadcast_to(
            draws, (4, channels)
        )
        return brightness, 1 + contrast, 1 + gain, noise

    def transform(self, results: dict) -> dict:
        """Change the channels of ``results['img']``."""
        img = results['img']
        x = np.atleast_3d(img).astype(np.float32)
        brightness, contrast, gain, noise = self._draw(x.shape[2])
        mean = _mean(x)
        std = np.sqrt(_mean(np.square(x - mean.astype(np.float32))))
        offset = gain * (mean * (1 - contrast) + std * brightness)
        x *= (gain * contrast).astype(np.float32)
        x += offset.astype(np.float32)
        if noise.any():
            size = (gain * std * noise).astype(np.float32)
            x += size * torch.randn(x.shape).numpy()  # the fastest generator
        if img.dtype.kind in 'ui':
            limits = np.iinfo(img.dtype)
            x = np.rint(x).clip(limits.min, limits.max)
        results['img'] = x.astype(img.dtype, copy=False).reshape(img.shape)
        return results


@TRANSFORMS.register_module()
class ResizeBands(ResizeEdge):
    """Resize one edge to a length, or both edges, with PIL's antialiasing.

    This is MMPreTrain's ``ResizeEdge`` for any number of channels. In
    MMPreTrain's class, Pillow accepts only uint8 images of at most four
    channels, and OpenCV does not filter before it shrinks an image.

    **Required Keys:** ``img``, (H, W) or (H, W, C), uint8 or float32.

    **Modified Keys:** ``img``, ``img_shape``; ``scale`` and ``scale_factor``
    are added, width first.

    Args:
        *args: Arguments of MMPreTrain's ``ResizeEdge``. ``scale`` is the
            length of the edge in pixels, or the (width, height) of the output,
            whatever the image's aspect ratio.
        **kwargs: Further arguments of that class. ``edge`` is ``'short'``,
            ``'long'``, ``'width'`` or ``'height'``; ``interpolation`` is
            ``'bilinear'`` or ``'bicubic'``.

    Raises:
        ValueError: At build time, for any other interpolation.
        TypeError: For images that are neither uint8 nor float32.
    """

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        F.check_interpolation(self.interpolation)

    def transform(self, results: dict) -> dict:
        """Resize the image of a sample."""
        if isinstance(self.scale, int):
            return super().transform(results)
        results['scale'] = tuple(self.scale)
        self._resize_img(results)
        return results

    def _resize_img(self, results: dict) -> None:
        height, width = results['img'].shape[:2]
        new_width, new_height = results['scale']
        results['img'] = F.resize(
            results['img'], (new_height, new_width), self.interpolation
        )
        results['img_shape'] = (new_height, new_width)
        results['scale_factor'] = (new_width / width, new_height / height)
