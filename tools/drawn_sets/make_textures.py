# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Draw the small labelled image set of the demo.

Twelve balanced classes are told apart by the texture inside a random
polygon. Place, scale, rotation, polarity, light, noise and clutter vary from
image to image, so the nearest neighbours in pixel space say little about the
class.
"""

import math
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

from _drawn_images import background, coverage, finish
from _drawn_set import draw_classes, run, set_parser

# Stored in meta.json. Increase it whenever the same arguments give different
# images.
FORMAT = 1
# Texture periods are given in pixels of an image of this side.
NOMINAL_SIZE = 48

# The arguments of a field are the texture's two coordinates (arrays, in
# periods), the factor of the stroke width and the random generator. The field
# returns the signed distance to the ink's edge in periods, positive inside the
# ink.
Field = Callable[
    [np.ndarray, np.ndarray, float, np.random.Generator], np.ndarray
]


def _wrap(x: np.ndarray) -> np.ndarray:
    """Return the signed distance to the nearest integer, in [-.5, .5]."""
    return x - np.rint(x)


def _stagger(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return ``u``, shifted by half a period in every other row of ``v``."""
    return u + 0.5 * (np.rint(v) % 2)


def _stripes(u, v, width, rng):
    return 0.24 * width - np.abs(_wrap(u))


def _waves(u, v, width, rng):
    return 0.24 * width - np.abs(_wrap(v + 0.5 * np.sin(2 * math.pi * u / 3)))


def _zigzag(u, v, width, rng):
    # The division by sqrt(2) makes the slanted bars' width a true distance.
    return (
        0.24 * width - np.abs(_wrap(v + 2 * np.abs(_wrap(u / 2))))
    ) / math.sqrt(2)


def _checks(u, v, width, rng):
    u, v = 0.25 - np.abs(_wrap(u)), 0.25 - np.abs(_wrap(v))
    return np.sign(u * v) * np.minimum(np.abs(u), np.abs(v))


def _grid(u, v, width, rng):
    return 0.11 * width - np.minimum(np.abs(_wrap(u)), np.abs(_wrap(v)))


def _bricks(u, v, width, rng):
    across = np.abs(_wrap(_stagger(u / 2, v)))
    return np.minimum(0.5 - np.abs(_wrap(v)), 2 * (0.5 - across)) - 0.1 * width


def _dashes(u, v, width, rng):
    along = np.abs(_wrap(_stagger(u / 2, v)))
    return np.minimum(0.17 * width - np.abs(_wrap(v)), 2 * (0.3 - along))


def _dots(u, v, width, rng):
    return 0.29 * width - np.hypot(_wrap(u), _wrap(v))


def _rings(u, v, width, rng):
    return 0.1 * width - np.abs(np.hypot(_wrap(u), _wrap(v)) - 0.33)


def _crosses(u, v, width, rng):
    u, v = np.abs(_wrap(u)), np.abs(_wrap(v))
    return np.minimum(0.1 * width - np.minimum(u, v), 0.36 - np.maximum(u, v))


def _triangles(u, v, width, rng):
    # Two equilateral triangles fill each cell of the lattice (a, b). The one
    # with a + b < 1 is ink.
    height = math.sqrt(3) / 2
    b = v / height
    a = (u - b / 2) % 1
    b = b % 1
    return height * (np.minimum(np.minimum(a, b), 1 - a - b))


def _blobs(u, v, width, rng):
    angle, phase = rng.uniform(0, 2 * math.pi, (2, 12, 1, 1))
    waves = 2 * math.pi * rng.uniform(0.75, 1.25, (12, 1, 1))
    field = np.sin(waves * (np.cos(angle) * u + np.sin(angle) * v) + phase)
    # The division makes the variance 1 and the slope about 2 pi.
    field = field.sum(0) / math.sqrt(6)
    return (field - 0.3) / (2 * math.pi)


# Class -> field, and period in pixels at the nominal size. The order is
# alphabetical, since readers of class folders number classes in that order.
_TEXTURES: dict[str, tuple[Field, float]] = {
    'blobs': (_blobs, 9),
    'bricks': (_bricks, 6.5),
    'checks': (_checks, 10),
    'crosses': (_crosses, 9),
    'dashes': (_dashes, 6.5),
    'dots': (_dots, 8),
    'grid': (_grid, 8),
    'rings': (_rings, 11),
    'stripes': (_stripes, 6.5),
    'triangles': (_triangles, 10),
    'waves': (_waves, 7),
    'zigzag': (_zigzag, 7.5),
}
CLASSES = tuple(_TEXTURES)


def _polygon(rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw a polygon that covers 35 to 75 % of the image.

    Returns how much of each pixel the polygon covers, (size, size).
    """
    while True:
        corners = rng.integers(5, 9)
        angle = (
            np.arange(corners) + rng.uniform(-0.3, 0.3, corners)
        ) * 2 * math.pi / corners + rng.uniform(0, 2 * math.pi)
        radius = rng.uniform(0.75, 1.25, corners) * rng.uniform(0.4, 0.58)
        centre = rng.uniform(0.36, 0.64, 2)
        points = centre + radius[:, None] * np.stack(
            [np.cos(angle), np.sin(angle)], 1
        )
        mask = coverage([points], size)
        if 0.35 <= mask.mean() <= 0.75:
            return mask


def draw(
    class_index: int, rng: np.random.Generator, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw one grey image of a class, and the mask of its texture.

    Args:
        class_index (int): Index into :data:`CLASSES`.
        rng (np.random.Generator): Source of all randomness; the same state
            gives the same image.
        size (int): Side in pixels. Everything scales with it.

    Returns:
        tuple[np.ndarray, np.ndarray]: The image, with full contrast, and its
        mask: 0 for the background, and the index of the class plus 1 for the
        texture. Both have the shape (size, size) and are uint8.
    """
    field, period = _TEXTURES[CLASSES[class_index]]
    period *= size / NOMINAL_SIZE * 1.25 ** rng.uniform(-1, 1)
    turn = rng.uniform(0, 2 * math.pi)
    y, x = np.mgrid[:size, :size] / period
    shift = rng.uniform(0, 16, 2)
    stretch = 1.1 ** rng.uniform(-1, 1)
    u = (math.cos(turn) * x + math.sin(turn) * y) * stretch + shift[0]
    v = (math.cos(turn) * y - math.sin(turn) * x) / stretch + shift[1]
    # Anti-aliasing: the edge of the ink is one pixel wide.
    ink = field(u, v, rng.uniform(0.85, 1.15), rng) * period
    texture = rng.uniform(0.6, 1) * (2 * np.clip(ink + 0.5, 0, 1) - 1)

    inside = _polygon(rng, size)
    image = inside * texture + (1 - inside) * background(rng, size)
    mask = np.where(inside > 0.5, class_index + 1, 0).astype(np.uint8)
    return finish(image, rng), mask


def make_textures(
    out: str | Path, size: int = 48, masks: bool = False, **numbers: int
) -> bool:
    """Draw the set, as grey JPEG files with three equal channels.

    Args:
        out (str | Path): Folder to make.
        size (int): Side in pixels, at least 24.
        masks (bool): Whether to write ``out/masks/<split>/<class>/*.png``.
        **numbers (int): See :func:`_drawn_set.draw_classes`.

    Returns:
        bool: True if the set was drawn, False if it was already there.

    Raises:
        ValueError: If a number is below its minimum.
        FileExistsError: If ``out`` holds anything other than this set.
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

    more = dict(size=size, min_size=24, format=FORMAT)
    more |= dict(masks=True) if masks else {}
    return draw_classes('textures', out, write, CLASSES, **more, **numbers)


def main() -> None:
    """Draw the set that the command line asks for."""
    parser = set_parser(__doc__.splitlines()[0], 5000, 1000, 48)
    masks = 'also write masks: 0 outside the texture, class index + 1 inside'
    parser.add_argument('--masks', action='store_true', help=masks)
    run(parser, make_textures)


if __name__ == '__main__':
    main()
