# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Folders and command lines, for the tools that draw image sets."""

import argparse
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.progress import track

SPLITS = ('train', 'val')

# A function that writes one image. Its arguments are the folder of the set,
# the image's path in that folder without suffix, the index of the image's
# class and the random generator.
Write = Callable[[Path, str, int, np.random.Generator], None]


def check_numbers(**numbers: tuple[int, int]) -> None:
    """Refuse numbers that are too small.

    Args:
        **numbers (tuple[int, int]): Name -> value and its minimum.

    Raises:
        ValueError: If one is below its minimum.
    """
    for name, (value, low) in numbers.items():
        if value < low:
            raise ValueError(f'{name} must be at least {low}, but got {value}')


@contextmanager
def drawn_set(out: str | Path, record: dict) -> Iterator[Path | None]:
    """Make the folder of a drawn set, unless it is already there.

    Args:
        out (str | Path): The folder, which appears whole or not at all.
        record (dict): Content of ``meta.json``: the numbers of images,
            ``train`` and ``val``, and whatever else distinguishes this set
            from others.

    Yields:
        Path | None: Where to draw; None if ``out`` already holds this set.

    Raises:
        FileExistsError: If ``out`` holds anything else.
    """
    out = Path(out).absolute()
    file, text = out / 'meta.json', json.dumps(record, indent=2) + '\n'
    if file.is_file() and json.loads(file.read_text()) == json.loads(text):
        print(f'{out} already holds this set: nothing to do.')
        yield None
        return
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise FileExistsError(
            f'{out} holds something other than the set asked for: give '
            'another folder or remove this one'
        )
    from mmmoca.files import atomic_write

    with atomic_write(out) as root:
        root.mkdir()
        yield root
        (root / 'meta.json').write_text(text)
    numbers = f'{record["train"]} training and {record["val"]} validation'
    print(f'{out}: {numbers} images.')


def draw_classes(
    what: str,
    out: str | Path,
    write: Write,
    classes: Sequence[str],
    *,
    train: int,
    val: int,
    size: int,
    seed: int = 0,
    min_size: int,
    **more: object,
) -> bool:
    """Make a labelled set in ImageFolder layout.

    Writes ``out/{train,val}/<class>/<number>``, with the suffix that ``write``
    adds, and ``out/meta.json``. Class sizes differ by one image at most. The
    folder appears whole or not at all; one that already holds this set is left
    alone.

    Args:
        what (str): What is drawn, for the progress bar.
        out (str | Path): Folder to make.
        write (Write): Called once for each image.
        classes (Sequence[str]): Names of the classes.
        train (int): Number of training images, at least one per class.
        val (int): Number of validation images, at least one per class.
        size (int): Side of the images in pixels.
        seed (int): Seed of the images, 0 or more.
        min_size (int): Smallest ``size`` that is allowed.
        **more (object): Further entries of ``meta.json`` that distinguish
            this set from others.

    Returns:
        bool: True if the set was drawn, False if it was already there.

    Raises:
        ValueError: If a number is below its minimum.
        FileExistsError: If ``out`` holds anything other than this set.
    """
    counts = train, val
    check_numbers(
        train=(train, len(classes)),
        val=(val, len(classes)),
        size=(size, min_size),
        seed=(seed, 0),
    )
    more |= dict(train=train, val=val, size=size, seed=seed, classes=classes)
    with drawn_set(out, more) as root:
        if root is None:
            return False
        for split, name in itertools.product(SPLITS, classes):
            (root / split / name).mkdir(parents=True)
        jobs = [(s, i) for s in (0, 1) for i in range(counts[s])]
        for split, index in track(jobs, f'Drawing {what}'):
            number, label = divmod(index, len(classes))
            rng = np.random.default_rng((seed, split, index))
            name = f'{SPLITS[split]}/{classes[label]}/{number:05d}'
            write(root, name, label, rng)
    return True


def set_parser(
    description: str,
    train: int,
    val: int,
    size: int,
    side: str = 'side of an image in pixels',
) -> argparse.ArgumentParser:
    """Return the parser of a command line that draws a set.

    Args:
        description (str): Description of the tool.
        train (int): Number of training images by default.
        val (int): Number of validation images by default.
        size (int): Side in pixels by default.
        side (str): Help text of ``--size``.

    Returns:
        argparse.ArgumentParser: The parser. The caller may add arguments, then
        hands it to :func:`run`.
    """
    parser = argparse.ArgumentParser(description=description)
    add = parser.add_argument
    add('out', help='folder to make')
    add('--train', type=int, default=train, help='number of training images')
    add('--val', type=int, default=val, help='number of validation images')
    add('--size', type=int, default=size, help=side)
    add('--seed', type=int, default=0)
    return parser


def run(parser: argparse.ArgumentParser, make: Callable[..., object]) -> None:
    """Draw what the command line asks for; print an error as one line."""
    try:
        make(**vars(parser.parse_args()))
    except (FileExistsError, ImportError, ValueError) as error:
        parser.error(str(error))
