# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Selects files by their extensions, and counts the files left out."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.util import find_spec

from torchvision.datasets.folder import IMG_EXTENSIONS

from mmmoca.messages import listed

HEIC = ('.heic', '.heif')
# Extensions of the formats that OpenCV decodes by default, and of HEIC if
# pillow-heif is installed.
EXTENSIONS = (
    *IMG_EXTENSIONS,
    *('.avif', '.gif', '.jfif', '.jp2', '.jpe', '.pbm', '.pnm'),
    *(HEIC if find_spec('pillow_heif') else ()),
)
# LoadBands also reads NumPy's arrays.
BAND_EXTENSIONS = (*EXTENSIONS, '.npy')
# Files of a kind (see `count_left_out`) that begins with these words are left
# out because of their extension.
_OTHERS = 'of .', 'without an extension'
# How to read files that no loader accepts as they are, by extension.
_WAYS = {
    HEIC: 'run `pip install pillow-heif` for .heic',
    ('.parquet',): (
        "use the folder that Hugging Face's load_dataset(FOLDER)."
        'save_to_disk(NEW) writes for .parquet'
    ),
}
TAKE = (
    "to include other extensions, set the data set's extensions to '' (all "
    'files) or to a list, or give a list of files'
)


def with_extension(
    paths: Iterable[str],
    extensions: tuple[str, ...],
    left_out: Counter[str],
) -> Iterator[str]:
    """Yield the files with one of the given extensions; count the rest.

    Args:
        paths (Iterable[str]): Names or paths of files.
        extensions (tuple[str, ...]): Lower-case endings, such as ``('.jpg',
            '_mask.png')``; ``('',)`` includes all files.
        left_out (Counter[str]): Number of files of each kind, such as ``of
            .avif`` or ``without an extension``. The files that are not yielded
            are added to it.

    Yields:
        The paths with one of the extensions, in the given order.
    """
    for path in paths:
        if path.lower().endswith(extensions):
            yield path
        else:
            count_left_out(path, left_out)


def count_left_out(path: str, left_out: Counter[str]) -> None:
    """Add a file to the counts of :func:`with_extension`."""
    extension = os.path.splitext(path)[1]
    left_out[f'of {extension}' if extension else 'without an extension'] += 1


def counted(left_out: Counter[str]) -> str:
    """Write counts of files: ``3 of .avif, 1 without an extension``."""
    return listed(f'{n} {kind}' for kind, n in left_out.most_common())


def ways_to_read(left_out: Counter[str]) -> list[str]:
    """Say what to do to read files that were left out.

    Args:
        left_out (Counter[str]): See :func:`with_extension`.

    Returns:
        list[str]: One imperative for each kind of file that needs another
        package or format; [] if there are no such files.
    """
    return [
        way
        for extensions, way in _WAYS.items()
        if any(kind.lower().endswith(extensions) for kind in left_out)
    ]


def left_out_sentence(
    left_out: Counter[str], remedy: str | None = None
) -> str:
    """Write a sentence about the files left out of a folder.

    Args:
        left_out (Counter[str]): See :func:`with_extension`, not empty.
        remedy (str, optional): What the user can do to include those files.
            Defaults to advice on extensions, if a file was left out because
            of its extension.
    """
    text = f'files left out: {counted(left_out)}'
    if remedy is None and any(kind.startswith(_OTHERS) for kind in left_out):
        remedy = TAKE
    if remedy:
        remedy = ', or '.join([remedy, *ways_to_read(left_out)])
    return f'{text} ({remedy})' if remedy else text
