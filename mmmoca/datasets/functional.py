# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Image operations that give PIL's results at OpenCV's speed.

MOCA's augmentation is defined by torchvision on PIL images (paper, appendix
"Image augmentations pseudo-code"). Each function here reproduces PIL's
arithmetic, including its truncation of fractions, so that the views have the
same distribution as with torchvision's pipeline.
"""

import math

import cv2
import numpy as np
import torch
import torch.nn.functional as F


def check_interpolation(interpolation: str) -> None:
    """Raise ValueError if :func:`resize` does not support an interpolation."""
    if interpolation not in ('bilinear', 'bicubic'):
        raise ValueError(
            f"interpolation={interpolation!r} must be 'bilinear' or 'bicubic'"
        )


def resize(
    img: np.ndarray, size: tuple[int, int], interpolation: str = 'bilinear'
) -> np.ndarray:
    """Resize with PIL's antialiasing.

    ``cv2.resize`` does not filter before it shrinks (or, with
    ``INTER_AREA``, filters less than PIL does); PyTorch's antialiased
    kernel equals PIL's except for rounding, and is fast.

    Args:
        img (np.ndarray): Image of shape (H, W) or (H, W, C), uint8 or float32.
        size (tuple[int, int]): Height and width to resize to, in pixels.
        interpolation (str): ``'bilinear'`` or ``'bicubic'``.

    Returns:
        The image, of shape (*size) or (*size, C), contiguous.

    Raises:
        TypeError: If the image is neither uint8 nor float32.
    """
    if img.dtype not in (np.uint8, np.float32):
        raise TypeError(
            f'cannot resize {img.dtype} images: load them with '
            'mmmoca.LoadBands'
        )
    x = torch.from_numpy(np.ascontiguousarray(np.atleast_3d(img)))
    # The permuted view has the channels-last memory format, the only one for
    # which PyTorch's kernel is fast.
    x = x[None].permute(0, 3, 1, 2)  # (H, W, C) -> (1, C, H, W)
    x = F.interpolate(x, size, mode=interpolation, antialias=True)
    out = np.ascontiguousarray(x[0].permute(1, 2, 0).numpy())
    return out.reshape(*size, *img.shape[2:])


def _blend_table(base: int, factor: float) -> np.ndarray:
    """Tabulate ``base + factor * (value - base)`` as uint8, (256,)."""
    values = np.arange(256, dtype=np.float32)
    values = base + np.float32(factor) * (values - base)
    return np.clip(values, 0, 255).astype(np.uint8)


def adjust_brightness(img: np.ndarray, factor: float) -> np.ndarray:
    """Blend with black: ``factor * img``.

    Args:
        img (np.ndarray): Image of shape (H, W, 3), uint8.
        factor (float): 0 gives black, 1 the image itself.

    Returns:
        The image, of the same shape and type.
    """
    return cv2.LUT(img, _blend_table(0, factor))


def adjust_contrast(img: np.ndarray, factor: float) -> np.ndarray:
    """Blend with the mean grey level of the image.

    Args:
        img (np.ndarray): BGR image of shape (H, W, 3), uint8.
        factor (float): 0 gives uniform grey, 1 the image itself.

    Returns:
        The image, of the same shape and type.
    """
    mean = cv2.mean(cv2.cvtColor(img, cv2.COLOR_BGR2GRAY))[0]
    return cv2.LUT(img, _blend_table(int(mean + 0.5), factor))


def adjust_saturation(img: np.ndarray, factor: float) -> np.ndarray:
    """Blend with the grey version of the image.

    Args:
        img (np.ndarray): BGR image of shape (H, W, 3), uint8.
        factor (float): 0 gives a grey image, 1 the image itself.

    Returns:
        The image, of the same shape and type.
    """
    # addWeighted rounds to nearest, but PIL truncates. A shift by just under
    # one half makes up for this, and leaves whole numbers unchanged.
    return cv2.addWeighted(img, factor, grayscale(img), 1 - factor, -0.499)


def adjust_hue(img: np.ndarray, shift: float) -> np.ndarray:
    """Rotate the hue.

    Args:
        img (np.ndarray): BGR image of shape (H, W, 3), uint8.
        shift (float): Fraction of the whole circle, in [-0.5, 0.5].

    Returns:
        The image, of the same shape and type.
    """
    hsv = cv2.cvtColor(img, cv2.COLOR_BGR2HSV_FULL)
    # uint8 wraps round, as the hue circle does; 255 is torchvision's scale.
    hsv[..., 0] += np.uint8(int(shift * 255) % 256)
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR_FULL)


def grayscale(img: np.ndarray) -> np.ndarray:
    """Return the grey version of an image, in three equal channels.

    Args:
        img (np.ndarray): BGR image of shape (H, W, 3), uint8.

    Returns:
        The image, of the same shape and type.
    """
    grey = cv2.cvtColor(img, cv2.COLOR_BGR2GRAY)
    return cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR)


def gaussian_blur(img: np.ndarray, sigma: float) -> np.ndarray:
    """Blur as ``PIL.ImageFilter.GaussianBlur(sigma)`` does.

    PIL averages over a box of fractional width, three times along the rows
    and three times along the columns (Gwosdek et al., "Theoretical
    Foundations of Gaussian Convolution by Extended Box Filtering", 2011).
    As in PIL, the result is rounded after each pass. Blurring a uint8 image
    in one pass, with the three boxes combined into one kernel or with a
    sampled Gaussian, would leave up to 12 % less contrast between neighbouring
    pixels.

    Args:
        img (np.ndarray): Image of shape (H, W) or (H, W, C), uint8 or float32.
        sigma (float): Standard deviation, in pixels; PIL calls it the radius.

    Returns:
        The image, of the same shape and type.
    """
    variance = sigma**2 / 3  # of each of the three boxes
    radius = math.floor((math.sqrt(12 * variance + 1) - 1) / 2)
    edge = (2 * radius + 1) * (radius * (radius + 1) - 3 * variance)
    edge /= 6 * (variance - (radius + 1) ** 2)
    box = np.array([edge] + [1.0] * (2 * radius + 1) + [edge])
    box /= box.sum()
    out = img
    for kernel in [box[None]] * 3 + [box[:, None]] * 3:
        out = cv2.filter2D(out, -1, kernel, borderType=cv2.BORDER_REPLICATE)
    return out.reshape(img.shape)  # OpenCV drops a single channel
