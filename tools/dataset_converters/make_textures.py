# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Draw the small labelled image set of the quick start.

Twelve balanced classes are told apart by the texture inside a random
polygon. Place, scale, rotation, polarity, light, noise and clutter vary from
image to image, so nearest neighbours in pixel space hardly know the class.
"""

import itertools
import json
import math
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from rich.progress import track

from _drawn_set import SPLITS, check_numbers, drawn_set, run, set_parser

__all__ = ['CLASSES', 'draw', 'make_textures']

# Goes into meta.json; raise it whenever the same arguments give other images.
FORMAT = 1
MIN_SIZE = 24
# Texture periods are given in pixels of an image of this side.
NOMINAL_SIZE = 48
CHUNK = 50

# A field takes the texture's two coordinates (arrays, in periods), the stroke
# width factor and the generator, and gives the signed distance to the ink's
# edge in periods, positive inside the ink.
Field = Callable[
    [np.ndarray, np.ndarray, float, np.random.Generator], np.ndarray
]


def _wrap(x: np.ndarray) -> np.ndarray:
    """Signed distance from ``x`` to the nearest integer, in [-.5, .5]."""
    return x - np.rint(x)


def _stagger(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Shift every other unit row of ``v`` by half a period of ``u``."""
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
    # Lattice coordinates of equilateral triangles: the upper ones are ink.
    height = math.sqrt(3) / 2
    b = v / height
    a = (u - b / 2) % 1
    b = b % 1
    return height * (np.minimum(np.minimum(a, b), 1 - a - b))


def _blobs(u, v, width, rng):
    angle, phase = rng.uniform(0, 2 * math.pi, (2, 12, 1, 1))
    waves = 2 * math.pi * rng.uniform(0.75, 1.25, (12, 1, 1))
    field = np.sin(waves * (np.cos(angle) * u + np.sin(angle) * v) + phase)
    # Of unit variance and slope about 2 pi after this.
    field = field.sum(0) / math.sqrt(6)
    return (field - 0.3) / (2 * math.pi)


# Each class with its period in pixels at the nominal size. In alphabetical
# order, so that ImageFolder readers give the same class indices.
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
    """Coverage (size, size) in [0, 1] of a polygon over 35 to 75 %."""
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
        # OpenCV takes fixed-point corners: 4 bits after the point.
        points = np.rint(points * size * 16).astype(np.int32)
        mask = np.zeros((size, size), np.uint8)
        cv2.fillPoly(mask, [points], 255, cv2.LINE_AA, 4)
        mask = mask / 255.0
        if 0.35 <= mask.mean() <= 0.75:
            return mask


def _smooth(rng: np.random.Generator, size: int) -> np.ndarray:
    """Smooth noise (size, size) of about unit variance."""
    return cv2.resize(
        rng.standard_normal((5, 5)),
        (size, size),
        interpolation=cv2.INTER_CUBIC,
    )


def _background(rng: np.random.Generator, size: int) -> np.ndarray:
    """A flat tone with smooth noise, faint lines and faint blobs."""
    image = rng.uniform(-0.5, 0.5) + 0.15 * _smooth(rng, size)
    for _ in range(rng.integers(2, 6)):
        tone = image.mean() + rng.uniform(-0.6, 0.6)
        start, end = rng.integers(0, size, (2, 2)).tolist()
        if rng.random() < 0.5:
            cv2.line(image, start, end, tone, max(1, size // 32))
        else:
            radius = size * rng.uniform(0.03, 0.08)
            cv2.circle(image, start, round(radius), tone, cv2.FILLED)
    return image


def draw(class_index: int, rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw one grey image of a class.

    Args:
        class_index (int): Index into :data:`CLASSES`.
        rng (np.random.Generator): Source of all that varies; the same state
            gives the same image.
        size (int): Side in pixels. Everything scales with it.

    Returns:
        np.ndarray: Image of shape (size, size), uint8, of full contrast.
    """
    field, period = _TEXTURES[CLASSES[class_index]]
    period *= size / NOMINAL_SIZE * 1.25 ** rng.uniform(-1, 1)
    turn = rng.uniform(0, 2 * math.pi)
    y, x = np.mgrid[:size, :size] / period
    shift = rng.uniform(0, 16, 2)
    stretch = 1.1 ** rng.uniform(-1, 1)
    u = (math.cos(turn) * x + math.sin(turn) * y) * stretch + shift[0]
    v = (math.cos(turn) * y - math.sin(turn) * x) / stretch + shift[1]
    # The edge of the ink is one pixel wide, which is the anti-aliasing.
    ink = field(u, v, rng.uniform(0.85, 1.15), rng) * period
    texture = rng.uniform(0.6, 1) * (2 * np.clip(ink + 0.5, 0, 1) - 1)

    mask = _polygon(rng, size)
    image = mask * texture + (1 - mask) * _background(rng, size)
    slope = rng.uniform(-0.4, 0.4, 2) * period / size
    image += slope[0] * x + slope[1] * y
    image += 0.1 * _smooth(rng, size)
    image += rng.uniform(0.03, 0.12) * rng.standard_normal((size, size))
    if rng.random() < 0.5:
        image = -image
    low, high = np.percentile(image, (1, 99))
    return np.rint(255 * np.clip((image - low) / (high - low), 0, 1)).astype(
        np.uint8
    )


def _write(root: Path, size: int, seed: int, job: tuple[int, range]) -> None:
    """Draw and write the images of one job: (split number, indices)."""
    split, indices = job
    for index in indices:
        number, label = divmod(index, len(CLASSES))
        rng = np.random.default_rng((seed, split, index))
        image = cv2.cvtColor(draw(label, rng, size), cv2.COLOR_GRAY2BGR)
        data = cv2.imencode('.jpg', image, (cv2.IMWRITE_JPEG_QUALITY, 95))[1]
        path = root / SPLITS[split] / CLASSES[label] / f'{number:05d}.jpg'
        path.write_bytes(data.tobytes())


def make_textures(
    out: str | Path,
    train: int = 5000,
    val: int = 1000,
    size: int = 48,
    seed: int = 0,
    workers: int = 2,
) -> bool:
    """Draw the texture set in ImageFolder layout.

    Writes ``out/{train,val}/<class>/<number>.jpg`` (three equal channels) and
    ``out/meta.json``. Class sizes differ by one image at most. The images
    depend on all arguments but ``workers``. The folder appears whole or not
    at all; one that already holds this set is left alone.

    Args:
        out (str | Path): Folder to make.
        train (int): Number of training images, at least 12.
        val (int): Number of validation images, at least 12.
        size (int): Side of the square images in pixels, at least 24.
        seed (int): Seed, 0 or more.
        workers (int): Number of processes, 1 or more. More than one are
            spawned, so a script that calls this needs the usual
            ``if __name__ == '__main__'`` guard.

    Returns:
        bool: True if the set was drawn, False if it was already there.

    Raises:
        ValueError: If a number is below its minimum.
        FileExistsError: If ``out`` holds anything else than this set.
    """
    least = len(CLASSES)
    check_numbers(
        train=(train, least),
        val=(val, least),
        size=(size, MIN_SIZE),
        seed=(seed, 0),
        workers=(workers, 1),
    )
    numbers = dict(format=FORMAT, train=train, val=val, size=size, seed=seed)
    meta = json.dumps(dict(numbers, classes=CLASSES), indent=2) + '\n'
    files = {'train/*/*.jpg': train, 'val/*/*.jpg': val}
    jobs = [
        (split, range(first, min(first + CHUNK, count)))
        for split, count in enumerate((train, val))
        for first in range(0, count, CHUNK)
    ]
    with drawn_set(out, meta, files) as root:
        if root is None:
            return False
        for split, name in itertools.product(SPLITS, CLASSES):
            (root / split / name).mkdir(parents=True)
        write = partial(_write, root, size, seed)
        progress = partial(
            track, description='Drawing textures', total=len(jobs)
        )
        if workers == 1:
            for _ in progress(map(write, jobs)):
                pass
        else:
            # Spawned, because forking a process with threads may deadlock.
            with ProcessPoolExecutor(
                workers, multiprocessing.get_context('spawn')
            ) as pool:
                for _ in progress(pool.map(write, jobs)):
                    pass
    return True


def main() -> None:
    """Draw the set that the command line asks for."""
    parser = set_parser(
        'Draw the texture image set of the quick start.',
        *(5000, 1000, 48, 'side of an image in pixels'),
    )
    parser.add_argument(
        '--workers', type=int, default=2, help='number of processes'
    )
    run(parser, make_textures)


if __name__ == '__main__':
    main()
