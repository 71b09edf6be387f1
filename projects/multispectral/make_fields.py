# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Draw a small multi-spectral image set: fields of six kinds, seen from above.

The kinds of land differ in their reflectance in 13 bands, roughly those of
Sentinel-2, but not in shape. Sun and haze vary from image to image, brightness
and texture from field to field. Each image is labelled by the field in its
middle, and has a mask of all its fields. So one set serves pretraining, k-NN
and segmentation.
"""

import math
import sys
from pathlib import Path

import numpy as np

sys.path.append(
    str(Path(__file__).resolve().parents[2] / 'tools' / 'drawn_sets')
)

from _drawn_set import draw_classes, run, set_parser

# Stored in meta.json. Increase it whenever the same arguments give different
# images.
FORMAT = 1
# Reflectance times 10000 in B1 to B8, B8A and B9 to B12: round numbers, not
# measured ones.
SIGNATURES = {
    'crop': '1150 900 950 700 1400 3200 3900 4100 4200 1300 15 2000 1000',
    'forest': '1100 800 700 450 900 2200 2700 2900 3000 900 15 1400 650',
    'grass': '1200 950 1050 900 1500 2600 2900 3100 3200 1000 15 2600 1500',
    'soil': '1400 1300 1500 1900 2200 2400 2600 2700 2900 900 20 3600 3000',
    'urban': '1500 1400 1450 1500 1650 1800 1900 2000 2050 650 20 2200 2000',
    'water': '1100 850 600 350 300 250 230 200 180 80 10 120 90',
}
CLASSES = tuple(SIGNATURES)  # in alphabetical order, as data sets sort them
SPECTRA = np.array([line.split() for line in SIGNATURES.values()], float)
HAZE = np.array([9, 7, 5, 3, 2, 2, 1, 1, 1, 0, 0, 0, 0]) / 9
FIELDS = 8
MIN_SIZE = 16


def draw(
    label: int, rng: np.random.Generator, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw one image and its mask.

    Args:
        label (int): Class of the field in the middle, an index into
            :data:`CLASSES`.
        rng (np.random.Generator): Source of all randomness.
        size (int): Side in pixels.

    Returns:
        tuple[np.ndarray, np.ndarray]: The bands, (size, size, 13), uint16,
        and the class of each pixel, (size, size), uint8.
    """
    y, x = np.mgrid[:size, :size] / size
    centres = rng.uniform(0, 1, (FIELDS, 2))
    kinds = rng.integers(0, len(CLASSES), FIELDS)
    centres[0], kinds[0] = rng.uniform(0.4, 0.6, 2), label
    distance = np.hypot(
        y[..., None] - centres[:, 0], x[..., None] - centres[:, 1]
    )
    distance[..., 0] -= 0.15  # the middle field is a larger one
    field = distance.argmin(axis=2)  # (size, size)

    turn = rng.uniform(0, math.pi, FIELDS)[field]
    period = rng.uniform(3, 6, FIELDS)[field] / size  # 3 to 6 pixels
    rows = np.sin(2 * math.pi * (np.cos(turn) * x + np.sin(turn) * y) / period)
    light = np.exp(0.2 * rng.standard_normal(FIELDS))[field] + 0.08 * rows
    light *= rng.uniform(0.6, 1.4)  # sun
    bands = light[..., None] * SPECTRA[kinds][field]
    bands += rng.uniform(0, 800) * HAZE
    bands *= 1 + 0.08 * rng.standard_normal(bands.shape)
    bands = np.rint(bands.clip(1, 65535)).astype(np.uint16)
    return bands, kinds[field].astype(np.uint8)


def make_fields(out: str | Path, size: int = 48, **numbers: int) -> bool:
    """Draw the set.

    Writes ``out/{train,val}/<class>/<number>.tif`` with 13 bands,
    ``out/masks/{train,val}/<class>/<number>.png`` with class indices, and
    ``out/meta.json``.

    Args:
        out (str | Path): Folder to make.
        size (int): Side of the square images in pixels, at least 16.
        **numbers (int): Numbers of images, ``train`` and ``val``, at least 6
            each, and ``seed``.

    Returns:
        bool: True if the set was drawn, False if it was already there.

    Raises:
        ValueError: If a number is below its minimum.
        FileExistsError: If ``out`` holds anything other than this set.
        OSError: If a file cannot be written.
        ImportError: If tifffile is missing.
    """
    import tifffile

    def write(
        root: Path, name: str, label: int, rng: np.random.Generator
    ) -> None:
        from mmcv import imwrite

        bands, mask = draw(label, rng, size)
        # mmcv creates the folder, and raises an error if the file cannot be
        # written. cv2.imwrite would only return False.
        imwrite(mask, root / 'masks' / f'{name}.png')
        # One page of 13 samples per pixel, as GDAL writes it.
        layout = dict(photometric='minisblack', planarconfig='contig')
        tifffile.imwrite(root / f'{name}.tif', bands, **layout)

    numbers |= dict(size=size, min_size=MIN_SIZE, format=FORMAT, bands=13)
    return draw_classes('fields', out, write, CLASSES, **numbers)


def main() -> None:
    """Draw the set that the command line asks for."""
    run(set_parser(__doc__.splitlines()[0], 1200, 300, 48), make_fields)


if __name__ == '__main__':
    main()
