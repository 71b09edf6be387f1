# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Draw lists of a few labelled images of each class.

Low-shot classification trains on these lists. They have the format of the
published lists for ImageNet: each line is a file name such as
``n04235860_14959.JPEG``, or ``<class>/<image>`` if the file names do not tell
the class.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import (
    image_folder,
    import_stack,
    positive_integer,
    run_program,
)


def make_subsets(
    train: str | Path,
    out: str | Path,
    shots: Sequence[int] = (1, 2, 5),
    percent: Sequence[float] = (1.0,),
    sets: int = 3,
    seed: int = 0,
) -> list[Path]:
    """Draw the lists and write them.

    Each set is drawn independently, from the seed and the number of the set.
    Within a set the larger lists include the smaller ones. Nothing is written
    unless all lists can be drawn.

    Args:
        train (str | Path): Folder of the class folders.
        out (str | Path): Folder for the lists: ``<n>shot_set<i>.txt`` for each
            set, and ``<p>percent.txt``, which is drawn only for set 0.
        shots (Sequence[int]): Numbers of images per class. There is a list
            for each number and each set.
        percent (Sequence[float]): Percentages of the images of each class.
            There is one list for each.
        sets (int): Number of sets.
        seed (int): Seed, 0 or more.

    Returns:
        list[Path]: The files.

    Raises:
        FileNotFoundError: If there is no such folder or no image in it.
        ValueError: If a number is out of range, there are fewer than two
            classes, or a class has too few images.
    """
    from mmmoca.datasets import ImageFolder
    from mmmoca.evaluation.subsets import (
        draw_subset,
        images_by_class,
        subset_line,
    )
    from mmmoca.files import write_text

    images = images_by_class(ImageFolder(str(train), pipeline=[]))
    lists = {}
    for number in shots:
        for i in range(sets):
            drawn = draw_subset(images, (seed, i), shots=number)
            lists[f'{number}shot_set{i}.txt'] = drawn
    for number in percent:
        drawn = draw_subset(images, (seed, 0), percent=number)
        lists[f'{number:g}percent.txt'] = drawn
    for name, drawn in lists.items():
        lines = sorted(subset_line(*image) for image in drawn)
        write_text(Path(out) / name, '\n'.join([*lines, '']))
    return [Path(out) / name for name in lists]


def draw(args: argparse.Namespace) -> None:
    """Draw the lists that a command line asks for.

    Args:
        args (argparse.Namespace): The command line.
    """
    import_stack()
    names = 'train', 'out', 'shots', 'percent', 'sets', 'seed'
    for path in make_subsets(**{name: getattr(args, name) for name in names}):
        print(path)


def main() -> None:
    """Draw lists of images."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('train', type=image_folder, help='folder of the class folders')
    add('out', help='folder for the lists')
    shots, few = 'images per class (by default 1 2 5)', [1, 2, 5]
    add('--shots', type=int, nargs='*', metavar='N', default=few, help=shots)
    share = 'percentages of the images of each class (by default 1)'
    add('--percent', type=float, nargs='*', default=[1.0], help=share)
    sets = 'number of lists to draw for each number in --shots (3)'
    add('--sets', type=positive_integer, default=3, help=sets)
    add('--seed', type=int, default=0)
    run_program(parser, draw)


if __name__ == '__main__':
    main()
