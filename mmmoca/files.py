# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Files and folders that appear whole or not at all."""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ['outside', 'whole', 'write_figure', 'write_json', 'write_text']


def outside(folder: str, paths: Iterable[str]) -> list[str]:
    """Those of some paths that lead out of the folder they are to lie in.

    Links in the folder may lead anywhere: whoever made it made them.

    Args:
        folder (str): The folder; an empty name means any place.
        paths (Iterable[str]): Paths that begin with it, or were absolute
            before they were joined to it.

    Returns:
        list[str]: The others.
    """
    if not folder:
        return []
    begin = os.path.join(folder, '')
    return [
        path
        for path in paths
        # Of a million paths nearly all are plain.
        if not (path.startswith(begin) and _is_plain(path[len(begin) :]))
        and _leads_out(path, begin)
    ]


def _is_plain(path: str) -> bool:
    return not any(part in path for part in ('..', '://', '\0'))


def _leads_out(path: str, folder: str) -> bool:
    name = path.removeprefix(folder)
    # MMEngine would ask another backend.
    if '://' in name or '\0' in name:
        return True
    places = [os.path.abspath]
    if '..' in path.split('/'):  # behind a link it is another folder
        places.append(os.path.realpath)
    return not all(
        place(path).startswith(os.path.join(place(folder), ''))
        for place in places
    )


@contextmanager
def whole(path: str | os.PathLike) -> Iterator[Path]:
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
        yield temporary
        os.replace(temporary, path)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a text file, whole or not at all.

    Args:
        path (str | os.PathLike): The file.
        text (str): What it holds.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Of one name, so that the next write takes what a killed one has left.
    temporary = path.with_name(f'.{path.name}.incomplete')
    try:
        temporary.write_text(text, encoding='utf-8')
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        # That of a full disk names no file.
        raise OSError(error.errno, error.strerror, str(path)) from error


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
    with whole(path) as temporary:
        figure.savefig(temporary, dpi=dpi)
