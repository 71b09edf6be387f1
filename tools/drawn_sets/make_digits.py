# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Write scikit-learn's handwritten digits as class folders of PNG files.

A real labelled image set that needs no download: 1797 grey images of 8 x 8
pixels, by 43 writers (UCI ML, "Optical Recognition of Handwritten Digits").
"""

import argparse
from pathlib import Path

import cv2
import numpy as np

from _drawn_set import check_numbers, run


def make_digits(
    out: str | Path, size: int = 48, limit: int | None = None
) -> None:
    """Write ``out/{train,val}/<digit>/<number>.png``.

    Every fourth image is in ``val``. The folder appears whole or not at all.

    Args:
        out (str | Path): Folder to make.
        size (int): Side that the images are enlarged to, in pixels, at least
            8. Defaults to 48.
        limit (int, optional): Take only the first ``limit`` images.

    Raises:
        ValueError: If ``size`` is below 8.
        FileExistsError: If ``out`` exists.
        OSError: If an image cannot be written.
    """
    out = Path(out).absolute()
    check_numbers(size=(size, 8))
    if out.exists():
        raise FileExistsError(f'{out} exists: remove it or give another name')
    from mmcv import imwrite
    from sklearn.datasets import load_digits

    from mmmoca.files import atomic_write

    digits = load_digits()
    counts = dict(train=0, val=0)
    with atomic_write(out) as root:
        pairs = zip(digits.images[:limit], digits.target[:limit])
        for number, (pixels, digit) in enumerate(pairs):
            split = 'train' if number % 4 else 'val'
            folder = root / split / str(digit)
            image = cv2.resize(
                np.rint(pixels * 255 / 16).astype(np.uint8),
                (size, size),
                interpolation=cv2.INTER_CUBIC,
            )
            # Unlike cv2.imwrite, which returns False, this raises if it fails.
            imwrite(image, folder / f'{number:04d}.png')
            counts[split] += 1
    train, val = counts.values()
    print(f'{out}: {train} training and {val} validation images')


def main() -> None:
    """Write the digits to the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('out', help='folder to make')
    side = 'side of an image in pixels'
    parser.add_argument('--size', type=int, default=48, help=side)
    run(parser, make_digits)


if __name__ == '__main__':
    main()
