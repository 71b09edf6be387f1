# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Draw a small labelled image set of letters or of plain shapes.

Both are glyphs of fonts that matplotlib brings along, in twelve balanced
classes. Place, size, tone and polarity vary from image to image. Letters are
of eighteen fonts, lean a little, and have light and noise. Shapes are turned
by any angle, on a plain ground.
"""

import math
import sys
from functools import cache, partial
from pathlib import Path

import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

sys.path.append(
    str(Path(__file__).resolve().parents[2] / 'tools' / 'drawn_sets')
)

from _drawn_images import coverage, draw_images, finish, rotation, smooth
from _drawn_set import run, set_parser

# Goes into meta.json; raise it whenever the same arguments give other images.
FORMAT = 1
# Glyphs by class, in the classes' alphabetical order.
SHAPES = (
    *('arrow', 'bolt', 'circle', 'cloud', 'club', 'crescent', 'cross'),
    *('heart', 'plane', 'square', 'star', 'triangle'),
)
SETS = dict(
    letters={letter: letter for letter in 'AEGHKMNQRSTY'},
    shapes=dict(zip(SHAPES, '➜⚡●☁♣☽✚♥✈■★▲')),
)
# Patterns of fontconfig. The first one has the shapes.
FONTS = [
    *(
        f'{family}:{style}:{weight}'
        for family in ('DejaVu Sans', 'DejaVu Serif', 'DejaVu Sans Mono')
        for style in ('roman', 'italic')
        for weight in ('medium', 'bold')
    ),
    *('STIXGeneral', 'STIXGeneral:bold', 'STIXGeneral:italic'),
    *('cmr10', 'cmss10', 'cmtt10'),
]


@cache
def outline(glyph: str, font: str) -> list[np.ndarray]:
    """The contours of a glyph about (0, 0), in a square of side 1.

    Args:
        glyph (str): A character.
        font (str): A pattern of fontconfig.

    Returns:
        list[np.ndarray]: Closed contours, each (corners, 2), x before y, with
        y down. One inside another is a hole.
    """
    path = TextPath((0, 0), glyph, size=100, prop=FontProperties(font))
    contours = [points * (1, -1) for points in path.to_polygons()]
    corners = np.concatenate(contours)
    low, high = corners.min(0), corners.max(0)
    return [(c - (low + high) / 2) / (high - low).max() for c in contours]


def draw(
    class_index: int, rng: np.random.Generator, size: int, kind: str
) -> np.ndarray:
    """Draw one grey image of a class.

    Args:
        class_index (int): Index into the classes.
        rng (np.random.Generator): Source of all that varies; the same state
            gives the same image.
        size (int): Side in pixels. Everything scales with it.
        kind (str): One of :data:`SETS`.

    Returns:
        np.ndarray: Image of shape (size, size), uint8, of full contrast.
    """
    letters = kind == 'letters'
    font = FONTS[rng.integers(len(FONTS) if letters else 1)]
    slant = np.array([(1, 0), (rng.uniform(-0.2, 0.2) * letters, 1)])
    angle = rng.uniform(-1, 1) * (0.2 if letters else math.pi)
    change = rng.uniform(0.4, 0.7) * slant @ rotation(angle)
    glyph = [*SETS[kind].values()][class_index]
    contours = [contour @ change for contour in outline(glyph, font)]
    corners = np.concatenate(contours)
    # Anywhere inside the image.
    low, high = -corners.min(0), 1 - corners.max(0)
    place = low + rng.uniform(0, 1, 2) * (high - low)
    mask = coverage([contour + place for contour in contours], size)
    ground = 0.1 * letters * smooth(rng, size)
    image = ground + rng.uniform(0.6, 1) * mask
    return finish(image, rng, clutter=0.5 * letters)


def make_glyphs(out: str | Path, kind: str, **numbers: int) -> bool:
    """Draw a set, see :func:`_drawn_images.draw_images`.

    Args:
        out (str | Path): Folder to make.
        kind (str): One of :data:`SETS`.
        **numbers (int): ``train``, ``val``, ``size`` and ``seed``.

    Returns:
        bool: True if the set was drawn, False if it was already there.
    """
    paint, classes = partial(draw, kind=kind), [*SETS[kind]]
    return draw_images(kind, out, paint, classes, format=FORMAT, **numbers)


if __name__ == '__main__':
    parser = set_parser(__doc__.splitlines()[0], 5000, 1000, 48)
    parser.add_argument('kind', choices=SETS)
    run(parser, make_glyphs)
