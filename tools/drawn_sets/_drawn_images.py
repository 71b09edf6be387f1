# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Outlines and grey images of the tools that draw image sets."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np

from _drawn_set import draw_classes

# Draws one image and its mask, (size, size), uint8: takes the index of its
# class, the generator and the side.
Draw = Callable[[int, np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


def rotation(angle: float) -> np.ndarray:
    """The matrix (2, 2) that turns row vectors by an angle in radians."""
    cos, sin = math.cos(angle), math.sin(angle)
    return np.array([(cos, sin), (-sin, cos)])


def regular(corners: int) -> np.ndarray:
    """A regular polygon (corners, 2) in the unit circle."""
    angle = np.arange(corners) * 2 * math.pi / corners
    return np.stack([np.cos(angle), np.sin(angle)], 1)


def cross(arm: float) -> np.ndarray:
    """A cross (12, 2) whose arms are ``2 * arm`` wide; their ends are at 1."""
    corners = np.array([(1, -arm), (1, arm), (arm, arm)])
    turns = [rotation(quarter * math.pi / 2) for quarter in range(4)]
    return np.concatenate([corners @ turn for turn in turns])


def coverage(contours: Sequence[np.ndarray], size: int) -> np.ndarray:
    """How much of each pixel lies inside a figure.

    Args:
        contours (Sequence[np.ndarray]): Corners, each (corners, 2), x before
            y, in sides of the image. One inside another cuts a hole.
        size (int): Side of the image in pixels.

    Returns:
        np.ndarray: (size, size), in [0, 1].
    """
    # OpenCV takes fixed-point corners: 4 bits after the point.
    points = [np.rint(c * size * 16).astype(np.int32) for c in contours]
    mask = np.zeros((size, size), np.uint8)
    cv2.fillPoly(mask, points, 255, cv2.LINE_AA, 4)
    return mask / 255.0


def smooth(rng: np.random.Generator, size: int) -> np.ndarray:
    """Smooth noise (size, size) of about unit variance."""
    return cv2.resize(
        rng.standard_normal((5, 5)),
        (size, size),
        interpolation=cv2.INTER_CUBIC,
    )


def background(
    rng: np.random.Generator, size: int, clutter: float = 1.0
) -> np.ndarray:
    """A flat tone (size, size) with smooth noise, faint lines and blobs."""
    image = rng.uniform(-0.5, 0.5) + 0.15 * clutter * smooth(rng, size)
    for _ in range(rng.integers(2, 6)):
        tone = image.mean() + clutter * rng.uniform(-0.6, 0.6)
        start, end = rng.integers(0, size, (2, 2)).tolist()
        if rng.random() < 0.5:
            cv2.line(image, start, end, tone, max(1, size // 32))
        else:
            radius = size * rng.uniform(0.03, 0.08)
            cv2.circle(image, start, round(radius), tone, cv2.FILLED)
    return image


def finish(
    image: np.ndarray, rng: np.random.Generator, clutter: float = 1.0
) -> np.ndarray:
    """Add light and noise, choose the polarity, stretch the contrast.

    Args:
        image (np.ndarray): (size, size), float, tones of about -1 to 1.
        rng (np.random.Generator): Source of all that varies.
        clutter (float): Strength of light and noise.

    Returns:
        np.ndarray: (size, size), uint8, of full contrast.
    """
    size = len(image)
    y, x = np.mgrid[:size, :size] / size
    slope = clutter * rng.uniform(-0.4, 0.4, 2)
    image = image + slope[0] * x + slope[1] * y
    image += 0.1 * clutter * smooth(rng, size)
    grain = clutter * rng.uniform(0.03, 0.12)
    image += grain * rng.standard_normal((size, size))
    if rng.random() < 0.5:
        image = -image
    low, high = np.percentile(image, (1, 99))
    return np.rint(255 * np.clip((image - low) / (high - low), 0, 1)).astype(
        np.uint8
    )


def draw_images(
    what: str,
    out: str | Path,
    draw: Draw,
    classes: Sequence[str],
    size: int = 48,
    masks: bool = False,
    **numbers: int,
) -> bool:
    """Make a labelled set of grey JPEG files with three equal channels.

    Args:
        what (str): Name of what is drawn, for the progress bar.
        out (str | Path): Folder to make.
        draw (Draw): Gives an image and its mask.
        classes (Sequence[str]): Names of the classes.
        size (int): Side in pixels, at least 24.
        masks (bool): Whether to write ``out/masks/<split>/<class>/*.png``.
        **numbers (int): See :func:`_drawn_set.draw_classes`.

    Returns:
        bool: True if the set was drawn, False if it was already there.

    Raises:
        ValueError: If a number is below its minimum.
        FileExistsError: If ``out`` holds anything else than this set.
    """

    def write(
        root: Path, name: str, label: int, rng: np.random.Generator
    ) -> None:
        image, mask = draw(label, rng, size)
        image = cv2.cvtColor(image, cv2.COLOR_GRAY2BGR)
        data = cv2.imencode('.jpg', image, (cv2.IMWRITE_JPEG_QUALITY, 95))[1]
        (root / f'{name}.jpg').write_bytes(data.tobytes())
        if masks:
            path = root / 'masks' / f'{name}.png'
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(cv2.imencode('.png', mask)[1].tobytes())

    more = dict(size=size, min_size=24, **({'masks': True} if masks else {}))
    return draw_classes(what, out, write, classes, **more, **numbers)
