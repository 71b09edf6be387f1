# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Draw a small labelled image set of shapes.

Twelve balanced classes are told apart by the outline of one large figure.
Place, scale, rotation, stretch, tone, polarity, light, noise and clutter vary
from image to image, so nearest neighbours in pixel space hardly know the
class. ``--clutter 0`` leaves figures on a plain ground.
"""

import math
import sys
from functools import partial
from pathlib import Path

import numpy as np

sys.path.append(
    str(Path(__file__).resolve().parents[2] / 'tools' / 'dataset_converters')
)

from _drawn_images import (
    background,
    coverage,
    cross,
    draw_images,
    finish,
    regular,
    rotation,
    smooth,
)
from _drawn_set import run, set_parser

__all__ = ['CLASSES', 'draw', 'make_shapes']

# Goes into meta.json; raise it whenever the same arguments give other images.
FORMAT = 1
# Of a disc at scale 1, in sides of the image. All figures fit into the image.
RADIUS = 0.35

# Closed contours (corners, 2) of a figure; one inside another is a hole.
Outline = list[np.ndarray]


def _arc(
    start: float, end: float, radius: float = 1, x: float = 0
) -> np.ndarray:
    """Points of a circle about (x, 0), between two angles in turns."""
    angle = np.linspace(start, end, 49) * 2 * math.pi
    circle = np.stack([np.cos(angle), np.sin(angle)], 1)
    return radius * circle + (x, 0)


def _star(points: int, inner: float) -> np.ndarray:
    angle = np.arange(2 * points) * math.pi / points
    radius = np.where(np.arange(2 * points) % 2, inner, 1)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)


def _crescent() -> np.ndarray:
    # The inner circle meets the outer one in the horns, at 1/7 of a turn.
    horn = np.exp(2j * math.pi / 7)
    x = 0.55
    inner = math.atan2(horn.imag, horn.real - x) / (2 * math.pi)
    radius = abs(horn - x)
    return np.concatenate(
        [_arc(1 / 7, 6 / 7), _arc(1 - inner, inner, radius, x)]
    )


def _heart() -> np.ndarray:
    t = np.linspace(0, 2 * math.pi, 49)[:-1]
    y = 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    return np.stack([16 * np.sin(t) ** 3, y], 1)


def _polygon(*corners: tuple[float, float]) -> np.ndarray:
    return np.array(corners, float)


def _area(contour: np.ndarray) -> float:
    x, y = contour.T
    return abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2


def _fit(outline: Outline) -> Outline:
    """Centre a figure, and scale it to be about as large as the unit disc.

    Neither its area nor its reach alone should tell the class: the geometric
    mean of the reach and of the radius of a disc of its area becomes 1.
    """
    low, high = outline[0].min(0), outline[0].max(0)
    outline = [contour - (low + high) / 2 for contour in outline]
    area = _area(outline[0]) - sum(_area(hole) for hole in outline[1:])
    reach = np.linalg.norm(outline[0], axis=1).max()
    scale = math.sqrt(reach * math.sqrt(area / math.pi))
    return [contour / scale for contour in outline]


# In alphabetical order, so that ImageFolder readers give the same class
# indices. A figure and its mirror image are of one class.
_OUTLINES: dict[str, Outline] = {
    name: _fit(outline)
    for name, outline in {
        'arrow': [
            _polygon(
                *((0, 1), (0.8, 0), (0.28, 0), (0.28, -1)),
                *((-0.28, -1), (-0.28, 0), (-0.8, 0)),
            )
        ],
        'circle': [regular(48)],
        'crescent': [_crescent()],
        'cross': [cross(0.3)],
        'drop': [np.concatenate([_arc(1 / 6, 5 / 6, 0.6), [(1.3, 0)]])],
        'ell': [
            _polygon((0, 0), (4, 0), (4, 1.6), (1.6, 1.6), (1.6, 5), (0, 5))
        ],
        'heart': [_heart()],
        'ring': [regular(48), 0.5 * regular(48)],
        'square': [regular(4)],
        'star': [_star(5, 0.42)],
        'tee': [
            _polygon(
                *((-3, 5), (3, 5), (3, 3.4), (0.8, 3.4)),
                *((0.8, 0), (-0.8, 0), (-0.8, 3.4), (-3, 3.4)),
            )
        ],
        'triangle': [regular(3)],
    }.items()
}
CLASSES = tuple(_OUTLINES)


def _turned(
    class_index: int, rng: np.random.Generator, scale: float
) -> Outline:
    """The figure of a class about (0, 0), turned and stretched by chance."""
    first, second = (rotation(a) for a in rng.uniform(0, 2 * math.pi, 2))
    stretch = 1.12 ** rng.uniform(-1, 1)
    change = scale * first @ np.diag([stretch, 1 / stretch]) @ second
    return [contour @ change for contour in _OUTLINES[CLASSES[class_index]]]


def draw(
    class_index: int,
    rng: np.random.Generator,
    size: int,
    clutter: float = 1.0,
) -> np.ndarray:
    """Draw one grey image of a class.

    Args:
        class_index (int): Index into :data:`CLASSES`.
        rng (np.random.Generator): Source of all that varies; the same state
            gives the same image.
        size (int): Side in pixels. Everything scales with it.
        clutter (float): Strength of light, noise, lines, blobs and small
            figures. Nothing else changes.

    Returns:
        np.ndarray: Image of shape (size, size), uint8, of full contrast.
    """
    image = background(rng, size, clutter)
    tone = image.mean() + rng.uniform(0.6, 1)
    # Smaller figures of any class, fainter than the large one.
    for _ in range(rng.integers(0, 4)):
        scale = RADIUS * rng.uniform(0.15, 0.35)
        small = _turned(rng.integers(len(CLASSES)), rng, scale)
        centre = rng.uniform(0, 1, 2)
        mask = coverage([contour + centre for contour in small], size)
        image += clutter * rng.uniform(-0.35, 0.35) * mask

    figure = _turned(class_index, rng, RADIUS * rng.uniform(0.6, 1))
    # Anywhere inside the image.
    low, high = -figure[0].min(0), 1 - figure[0].max(0)
    centre = low + rng.uniform(0, 1, 2) * (high - low)
    mask = coverage([contour + centre for contour in figure], size)
    inside = tone + 0.15 * clutter * smooth(rng, size)
    return finish(mask * inside + (1 - mask) * image, rng, clutter)


def make_shapes(
    out: str | Path,
    train: int = 5000,
    val: int = 1000,
    size: int = 48,
    seed: int = 0,
    clutter: float = 1.0,
) -> bool:
    """Draw the shape set, as :func:`_drawn_images.draw_images` does.

    Raises:
        ValueError: Also if ``clutter`` is not within 0 and 1.
    """
    if not 0 <= clutter <= 1:
        raise ValueError(f'clutter must be within 0 and 1, but got {clutter}')
    numbers = dict(format=FORMAT, train=train, val=val, size=size, seed=seed)
    if clutter != 1:
        numbers['clutter'] = clutter
    paint = partial(draw, clutter=clutter)
    return draw_images('shapes', out, paint, CLASSES, numbers)


def main() -> None:
    """Draw the set that the command line asks for."""
    parser = set_parser(
        'Draw a small image set of twelve shapes.',
        *(5000, 1000, 48, 'side of an image in pixels'),
    )
    parser.add_argument(
        '--clutter',
        type=float,
        default=1.0,
        help='strength of what tells nothing about the class, 0 to 1',
    )
    run(parser, make_shapes)


if __name__ == '__main__':
    main()
