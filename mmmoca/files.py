# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Files and folders that appear whole or not at all."""

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    'atomic_write',
    'outside',
    'shipped',
    'write_figure',
    'write_json',
    'write_text',
]

_PACKAGE = Path(__file__).resolve().parent
# Parts of a path that lead elsewhere: up, to another backend, to its end.
_LEADS_OUT = re.compile(r'(^|/)\.\.(/|$)|://|\0')


def shipped(name: str) -> Path | None:
    """Find what comes with the package and lies outside of its modules.

    Args:
        name (str): Path of a file or folder of the repository, such as
            ``configs`` or ``tools/train.py``.

    Returns:
        Path | None: Where it is: in ``.mim`` of a package as installed, or
        beside the package in a checkout. None where neither is.
    """
    for root in (_PACKAGE / '.mim', _PACKAGE.parent):
        if (root / name).exists():
            return root / name
    return None


def outside(folder: str, paths: Iterable[str]) -> list[str]:
    """Those of some paths that may lead out of the folder they are to lie in.

    Links in the folder may lead anywhere: whoever made it made them.

    Args:
        folder (str): The folder; an empty name means any place.
        paths (Iterable[str]): Paths that begin with it, or were absolute
            before they were joined to it.

    Returns:
        list[str]: Those that do not begin with it, or have ``..`` in them.
    """
    begin = os.path.join(folder, '')
    return [
        path
        for path in paths
        if begin
        and not (
            path.startswith(begin)
            and _LEADS_OUT.search(path, len(begin) - 1) is None
        )
    ]


@contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[Path]:
    """Let a file or a folder appear when it is complete.

    Args:
        path (str | os.PathLike): Where to. The folder that it lies in is
            made if need be; an older file gives way, a folder does not
            unless it is empty.

    Yields:
        Path: Where to write meanwhile, under the same name. Nothing of it is
        left if an exception is raised.
    """
    path = Path(os.path.abspath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    # A sibling is on the same file system, so that renaming is atomic.
    with tempfile.TemporaryDirectory(
        prefix=f'.{path.name}-', dir=path.parent
    ) as folder:
        temporary = Path(folder) / path.name
        try:
            yield temporary
            os.replace(temporary, path)
        except OSError as error:
            if error.errno and error.filename is None:  # as of a full disk
                error.filename = str(path)
            raise


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a text file, whole or not at all.

    Args:
        path (str | os.PathLike): The file.
        text (str): What it holds.
    """
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding='utf-8')


def write_json(path: str | os.PathLike, data: dict) -> None:
    """Write a JSON file, whole or not at all.

    Args:
        path (str | os.PathLike): The file.
        data (dict): What json can write.
    """
    write_text(path, json.dumps(data, indent=2) + '\n')


def write_figure(
    path: str | os.PathLike, figure: 'Figure', dpi: int = 130
) -> None:
    """Write a figure of matplotlib, whole or not at all.

    Args:
        path (str | os.PathLike): The picture; its suffix decides the format.
        figure (Figure): The figure.
        dpi (int): Pixels an inch. Defaults to 130.
    """
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # a dollar in a name is a dollar
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=dpi)
