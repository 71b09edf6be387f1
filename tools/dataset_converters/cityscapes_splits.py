# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Write the low-shot splits of Cityscapes: ``python ... data/cityscapes``.

The splits of French et al. (arXiv:1906.01916), which the paper trains with:
the first n of a seeded permutation of all sorted training ids.
"""

import argparse
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

SUFFIX = '_leftImg8bit.png'
SIZES, SEEDS = (100, 372), (12345, 23456, 34567)
NUM_IDS = 2975
# First 16 hex digits of the SHA-256 of a file's text, by size and seed.
CHECKSUM_OF_IDS = '5be898907a337d99'
CHECKSUMS = {
    (100, 12345): 'd7c38ad919333961',
    (372, 12345): 'f9b55851e3531685',
    (100, 23456): '02cb8582f4c9ae77',
    (372, 23456): '8d42e297dbdc9d9d',
    (100, 34567): '3a8594785b10019a',
    (372, 34567): '77f87b576250982d',
}


def list_ids(data_root: Path) -> list[str]:
    """Ids of the training images, ``city/city_sequence_frame``, sorted.

    Args:
        data_root (Path): Has ``leftImg8bit/train/<city>/``.

    Returns:
        List[str]: The ids.

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
    """The first ids of a seeded permutation.

    Args:
        ids (Sequence[str]): All ids, sorted.
        size (int): How many to take.
        seed (int): Seed of NumPy's ``RandomState``.

    Returns:
        List[str]: The split, in the order of the permutation.

    Raises:
        ValueError: If there are fewer ids than that.
    """
    if not 0 < size <= len(ids):
        raise ValueError(f'cannot draw {size} of {len(ids)} images')
    order = np.random.RandomState(seed).permutation(len(ids))
    return [ids[index] for index in order[:size]]


def checksum(ids: Sequence[str]) -> str:
    """First 16 hex digits of the SHA-256 of the ids, one a line."""
    return hashlib.sha256(_text(ids).encode()).hexdigest()[:16]


def verify(
    ids: Sequence[str], splits: dict[tuple[int, int], list[str]]
) -> str:
    """Compare splits (by size and seed) with the public ones' checksums.

    Args:
        ids (Sequence[str]): All ids, sorted.
        splits (Dict[Tuple[int, int], List[str]]): The splits.

    Returns:
        str: What was found, for people.

    Raises:
        ValueError: If the images are the public ones, but a split is not.
    """
    if checksum(ids) != CHECKSUM_OF_IDS:
        return (
            f'NOT the splits of the paper: they are drawn from the {NUM_IDS} '
            f'images of Cityscapes, and these {len(ids)} are others'
        )
    known = [key for key in splits if key in CHECKSUMS]
    for size, seed in known:
        found = checksum(splits[size, seed])
        if found != CHECKSUMS[size, seed]:
            raise ValueError(
                f'the split of {size} images with the seed {seed} has the '
                f'checksum {found} instead of {CHECKSUMS[size, seed]}: this '
                'NumPy draws otherwise; nothing was written'
            )
    return f'the checksums of {len(known)} of {len(splits)} splits are right'


def _text(ids: Sequence[str]) -> str:
    return '\n'.join(ids) + '\n'


def main() -> None:
    """Draw, verify and write the splits."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    add = parser.add_argument
    add('data_root', type=Path, help='the folder with leftImg8bit and gtFine')
    add('--sizes', type=int, nargs='+', default=SIZES)
    seeds = 'one for each split; the public ones go on with 45678 and 56789'
    add('--seeds', type=int, nargs='+', default=SEEDS, help=seeds)
    add('--out', type=Path, help='folder (by default DATA_ROOT/splits)')
    args = parser.parse_args()
    try:
        ids = list_ids(args.data_root)
        splits = {
            (size, seed): draw_split(ids, size, seed)
            for size in args.sizes
            for seed in args.seeds
        }
        report = verify(ids, splits)
    except (FileNotFoundError, ValueError) as error:
        parser.error(str(error))
    from mmmoca.files import write_text

    folder = args.out or args.data_root / 'splits'
    for (size, seed), split in splits.items():
        path = folder / f'{size}_split{args.seeds.index(seed)}.txt'
        write_text(path, _text(split))
        print(path)
    print(report)


if __name__ == '__main__':
    main()
