# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Cut a labelled image set out of large photographs.

Each photograph is a class. Its images are squares of a grid, which do not
overlap; almost plain squares are left out. One square in five is held out, in
``val``. Writes ``OUT/{train,val}/<photograph>/<row>-<column>.png``.
Photographs are shrunk first, so that a square shows more than a blur.

docs/benchmarks/rivals.md uses 36 photographs from four packages of Debian:
lomiri-wallpapers-16.04 and -20.04 (20.04.0-2; CC BY, CC BY-SA, CC0),
mate-backgrounds (1.26.0-1; GPL-2+, the folder ``nature``) and
plasma-workspace-wallpapers (5.27.5-2; GPL-2+). From the last package it uses
only BytheWater, ColdRipple, ColorfulCups, EveningGlow, FallenLeaf, Grey, Kite,
OneStandsOut, Path and Volna. It leaves out drawings in all four packages.

Example:
    python projects/rivals/photographs.py ~/wallpapers data/photographs
"""

import argparse
import json
from pathlib import Path

import numpy as np

HELD_OUT = 5  # one square in five


def squares(
    image: np.ndarray, size: int, contrast: float
) -> dict[str, np.ndarray]:
    """Cut the squares with content out of an image.

    Args:
        image (np.ndarray): (H, W, 3), uint8.
        size (int): Side of a square in pixels.
        contrast (float): Smallest standard deviation of a square's grey
            values, which are from 0 to 255.

    Returns:
        dict[str, np.ndarray]: Row and column -> square, (size, size, 3).
    """
    found = {}
    for row in range(image.shape[0] // size):
        for column in range(image.shape[1] // size):
            part = image[row * size :, column * size :][:size, :size]
            if part.mean(axis=2).std() >= contrast:
                found[f'{row:02d}-{column:02d}'] = part
    return found


def cut(
    folder: Path, out: Path, size: int, side: int, contrast: float, most: int
) -> None:
    """Write the set, with the numbers of images in ``out/meta.json``.

    Args:
        folder (Path): The photographs, at any depth.
        out (Path): Folder to make.
        size (int): Side of a square in pixels.
        side (int): Longer side of a shrunk photograph.
        contrast (float): See :func:`squares`.
        most (int): Largest number of squares per photograph. If it has more,
            this number is drawn at random.

    Raises:
        FileExistsError: If ``out`` exists.
    """
    # This import also checks the versions.
    import mmmoca.import_mmpretrain  # noqa: F401

    # isort: split
    from mmcv import imrescale, imwrite
    from rich.progress import track

    from mmmoca.datasets import ImageFolder
    from mmmoca.files import atomic_write

    if out.exists():
        raise FileExistsError(f'{out} exists: remove it or give another name')
    photographs = ImageFolder(
        data_root=str(folder),
        with_label=False,
        pipeline=[dict(type='mmmoca.LoadImage')],
    )
    draw = np.random.default_rng(0)
    counts, few = dict(train=0, val=0), 0
    with atomic_write(out.absolute()) as root:
        for number in track(range(len(photographs)), 'photographs'):
            found = photographs[number]
            image = found['img']
            if max(image.shape[:2]) > side:
                image = imrescale(image, (side, side), interpolation='area')
            parts = squares(image, size, contrast)
            order = draw.permutation([*parts])[:most]
            if len(order) < HELD_OUT:  # too few to hold out one in five
                few += 1
                continue
            for i, place in enumerate(order):
                split = 'val' if i % HELD_OUT == 0 else 'train'
                name = f'{number:03d}_{Path(found["img_path"]).stem}'
                imwrite(parts[place], root / split / name / f'{place}.png')
                counts[split] += 1
        (root / 'meta.json').write_text(json.dumps(counts) + '\n')
    print(
        f'{out}: {counts["train"]} training and {counts["val"]} held-out '
        'squares'
    )
    if few:
        print(
            f'photographs with fewer than {HELD_OUT} squares, left out: {few}'
        )


def main() -> None:
    """Cut the photographs that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('folder', type=Path, help='folder of photographs, at any depth')
    add('out', type=Path, help='folder to make')
    square = 'side of a square, in pixels (96)'
    add('--size', type=int, default=96, help=square)
    side = 'longer side of a shrunk photograph, in pixels (2048)'
    add('--side', type=int, default=2048, help=side)
    contrast = 'smallest standard deviation of grey values from 0 to 255 (12)'
    add('--contrast', type=float, default=12.0, help=contrast)
    most = 'maximum number of squares per photograph (150)'
    add('--most', type=int, default=150, help=most)
    cut(**vars(parser.parse_args()))


if __name__ == '__main__':
    main()
