# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Draw lists of a few labelled images a class: ``make_subset.py TRAIN OUT``.

The lists are what low-shot classification trains on, in the public format:
one ``n04235860_14959.JPEG`` a line, or ``<class>/<image>`` where the file
names do not tell the class.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def make_subsets(
    train: str | Path,
    out: str | Path,
    shots: Sequence[int] = (1, 2, 5),
    percent: Sequence[float] = (1.0,),
    sets: int = 3,
    seed: int = 0,
) -> list[Path]:
    """Draw the lists and write them.

    Set i of a seed is drawn by numbers of its own; its larger lists include
    the smaller ones. Nothing is written unless all lists can be drawn.

    Args:
        train (str | Path): Folder of the class folders.
        out (str | Path): Folder for the lists: ``<n>shot_set<i>.txt``, and
            ``<p>percent.txt`` of set 0.
        shots (Sequence[int]): Images a class, a list for each of these and
            for each set.
        percent (Sequence[float]): Percentages of each class, one list each.
        sets (int): Number of sets, at least 1.
        seed (int): Seed, 0 or more.

    Returns:
        list[Path]: The files.

    Raises:
        FileNotFoundError: If there is no such folder or no image in it.
        ValueError: If a number is out of range, there are fewer than two
            classes, or a class has too few images.
    """
    if sets < 1:
        raise ValueError(f'sets must be at least 1, but got {sets}')
    from mmmoca import stack

    stack.import_quietly('mmpretrain.datasets')
    from mmmoca.datasets import ImageFolder
    from mmmoca.evaluation.subsets import draw_subset, images_by_class
    from mmmoca.files import write_text

    images = images_by_class(ImageFolder(str(train), pipeline=[]))
    texts = {
        f'{number}shot_set{i}.txt': draw_subset(
            images, (seed, i), shots=number
        )
        for number in shots
        for i in range(sets)
    } | {
        f'{number:g}percent.txt': draw_subset(
            images, (seed, 0), percent=number
        )
        for number in percent
    }
    for name, lines in texts.items():
        write_text(Path(out) / name, ''.join(f'{line}\n' for line in lines))
    return [Path(out) / name for name in texts]


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description='Draw lists of a few labelled images a class'
    )
    parser.add_argument('train', help='folder of the class folders')
    parser.add_argument('out', help='folder for the lists')
    parser.add_argument(
        '--shots',
        type=int,
        nargs='*',
        default=[1, 2, 5],
        metavar='N',
        help='images a class (by default 1 2 5)',
    )
    parser.add_argument(
        '--percent',
        type=float,
        nargs='*',
        default=[1.0],
        metavar='P',
        help='percentages of each class (by default 1)',
    )
    parser.add_argument(
        '--sets', type=int, default=3, help='lists for each number of images'
    )
    parser.add_argument('--seed', type=int, default=0)
    args = parser.parse_args()
    if not Path(args.train).is_dir():
        parser.error(f'there is no folder {args.train}')
    return args


def main() -> None:
    """Draw them."""
    args = parse_args()
    try:
        files = make_subsets(**vars(args))
    except (OSError, ValueError) as error:
        sys.exit(f'make_subset.py: error: {error}')
    for path in files:
        print(path)


if __name__ == '__main__':
    main()
