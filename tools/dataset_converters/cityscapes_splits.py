# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Write the low-shot splits of Cityscapes.

These are the public splits of French et al. (arXiv:1906.01916). MOCA's paper
does not say which splits it uses. Each split is the first n ids of a seeded
permutation of all sorted training ids.
"""

import argparse
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

SUFFIX = '_leftImg8bit.png'
SIZES, SEEDS = (100, 372), (12345, 23456, 34567)
NUM_IDS = 2975
# First 16 hex digits of the SHA-256 of all ids, one id on each line.
CHECKSUM = '5be898907a337d99'


def list_ids(data_root: Path) -> list[str]:
    """Return the sorted ids of the training images, ``city/frame``.

    Args:
        data_root (Path): Folder that contains ``leftImg8bit/train/<city>/``.

    Returns:
        list[str]: The ids.

    Raises:
        FileNotFoundError: If there is no image.
    """
    folder = Path(data_root) / 'leftImg8bit' / 'train'
    ids = sorted(
        path.relative_to(folder).as_posix().removesuffix(SUFFIX)
        for path in folder.glob(f'*/*{SUFFIX}')
    )
    if not ids:
        raise FileNotFoundError(
            f'there is no <city>/*{SUFFIX} in {folder}: give the folder that '
            'has leftImg8bit and gtFine'
        )
    return ids


def draw_split(ids: Sequence[str], size: int, seed: int) -> list[str]:
    """Return the first ids of a seeded permutation.

    Args:
        ids (Sequence[str]): All ids, sorted.
        size (int): How many to take.
        seed (int): Seed of NumPy's ``RandomState``.

    Returns:
        list[str]: The split, in the order of the permutation.

    Raises:
        ValueError: If ``size`` is below 1 or above the number of ids.
    """
    if not 0 < size <= len(ids):
        raise ValueError(f'cannot draw {size} of {len(ids)} images')
    order = np.random.RandomState(seed).permutation(len(ids))
    return [ids[index] for index in order[:size]]


def _text(ids: Sequence[str]) -> str:
    return '\n'.join(ids) + '\n'


def main() -> None:
    """Draw, verify and write the splits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('data_root', type=Path, help='the folder with leftImg8bit and gtFine')
    add('--sizes', type=int, nargs='+', default=SIZES)
    seeds = (
        'one seed for each split (by default 12345 23456 34567; the public '
        'splits also have the seeds 45678 and 56789)'
    )
    add('--seeds', type=int, nargs='+', default=SEEDS, help=seeds)
    out = 'folder for the splits (by default DATA_ROOT/splits)'
    add('--out', type=Path, help=out)
    args = parser.parse_args()
    try:
        ids = list_ids(args.data_root)
        splits = {
            (size, seed): draw_split(ids, size, seed)
            for size in args.sizes
            for seed in args.seeds
        }
    except (FileNotFoundError, ValueError) as error:
        parser.error(str(error))
    from mmmoca.files import write_text

    folder = args.out or args.data_root / 'splits'
    for (size, seed), split in splits.items():
        path = folder / f'{size}_split{args.seeds.index(seed)}.txt'
        if path.exists() and path.read_text() != _text(split):
            parser.error(f'{path} holds another split: choose another --out')
        write_text(path, _text(split))
        print(path)
    digits = hashlib.sha256(_text(ids).encode()).hexdigest()
    if not digits.startswith(CHECKSUM):
        print(
            f'NOT the public splits: those are drawn from the {NUM_IDS} '
            f'images of Cityscapes, but some of the {len(ids)} images here '
            'are different, or some are missing'
        )


if __name__ == '__main__':
    main()
