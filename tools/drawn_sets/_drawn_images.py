# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Outlines and grey images, for the tools that draw image sets."""

import math
from collections.abc import Sequence

import cv2
import numpy as np


def rotation(angle: float) -> np.ndarray:
    """Return the (2, 2) matrix that turns row vectors by ``angle`` radians."""
    cos, sin = math.cos(angle), math.sin(angle)
    return np.array([(cos, sin), (-sin, cos)])


def regular(corners: int) -> np.ndarray:
    """Return a regular polygon (corners, 2) in the unit circle."""
    angle = np.arange(corners) * 2 * math.pi / corners
    return np.stack([np.cos(angle), np.sin(angle)], 1)


def cross(arm: float) -> np.ndarray:
    """Return a cross, (12, 2), with arms of length 1 and width 2 * ``arm``."""
    corners = np.array([(1, -arm), (1, arm), (arm, arm)])
    turns = [rotation(quarter * math.pi / 2) for quarter in range(4)]
    return np.concatenate([corners @ turn for turn in turns])


def coverage(contours: Sequence[np.ndarray], size: int) -> np.ndarray:
    """Return how much of each pixel is inside a figure.

    Args:
        contours (Sequence[np.ndarray]): Corners of each outline, (corners, 2),
            x before y, in units of the image's side. An outline inside
            another one cuts a hole.
        size (int): Side of the image in pixels.

    Returns:
        np.ndarray: (size, size), in [0, 1].
    """
    # OpenCV expects fixed-point numbers, with 4 bits after the point.
    points = [np.rint(c * size * 16).astype(np.int32) for c in contours]
    mask = np.zeros((size, size), np.uint8)
    cv2.fillPoly(mask, points, 255, cv2.LINE_AA, 4)
    return mask / 255.0


def smooth(rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw smooth noise (size, size) of about unit variance."""
    return cv2.resize(
        rng.standard_normal((5, 5)),
        (size, size),
        interpolation=cv2.INTER_CUBIC,
    )


def background(rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw a flat tone, (size, size), with noise, faint lines and blobs."""
    image = rng.uniform(-0.5, 0.5) + 0.15 * smooth(rng, size)
    for _ in range(rng.integers(2, 6)):
        tone = image.mean() + rng.uniform(-0.6, 0.6)
        start, end = rng.integers(0, size, (2, 2)).tolist()
        if rng.random() < 0.5:
            cv2.line(image, start, end, tone, max(1, size // 32))
        else:
            radius = size * rng.uniform(0.03, 0.08)
            cv2.circle(image, start, round(radius), tone, cv2.FILLED)
    return image


def finish(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Add light and noise, choose the polarity, stretch the contrast.

    Args:
        image (np.ndarray): (size, size), float, tones of about -1 to 1.
        rng (np.random.Generator): Source of all randomness.

    Returns:
        np.ndarray: (size, size), uint8, with full contrast.
    """
    size = len(image)
    y, x = np.mgrid[:size, :size] / size
    slope = rng.uniform(-0.4, 0.4, 2)
    image = image + slope[0] * x + slope[1] * y
    image += 0.1 * smooth(rng, size)
    image += rng.uniform(0.03, 0.12) * rng.standard_normal((size, size))
    if rng.random() < 0.5:
        image = -image
    low, high = np.percentile(image, (1, 99))
    image = np.clip((image - low) / (high - low), 0, 1)
    return np.rint(255 * image).astype(np.uint8)
