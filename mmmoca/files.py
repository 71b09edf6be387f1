# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Writing files whole or not at all, reading lists, names that lead out."""

import codecs
import io
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Parts of a path that leave its folder: .., another backend, a null byte.
_LEADS_OUT = re.compile(r'(^|/)\.\.(/|$)|://|\0')


def outside(folder: str, paths: Iterable[str]) -> list[str]:
    """Find the paths that leave a folder.

    Symbolic links are trusted: the owner of the folder made them.

    Args:
        folder (str): The folder. An empty name allows any place.
        paths (Iterable[str]): Paths that begin with the folder, or were
            absolute before they were joined to it.

    Returns:
        list[str]: Paths that do not begin with the folder or contain ``..``.
    """
    if not folder:
        return []
    begin = os.path.join(folder, '')
    return [
        path
        for path in paths
        if not path.startswith(begin)
        or _LEADS_OUT.search(path, len(begin) - 1)
    ]


def check_regular(path: str | os.PathLike) -> None:
    """Refuse a pipe, a device or a folder, whose reading may never end.

    Args:
        path (str | os.PathLike): What is to be read. A URL, and what is
            missing, is left to its reader.

    Raises:
        OSError: If it is there and no regular file.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # the latter for a null byte
        return
    if not stat.S_ISREG(mode):
        raise OSError(f'{path} is no regular file')


def read_lines(path: str | os.PathLike) -> Iterator[str]:
    """Read a list of names, one a line, as any system writes it.

    Args:
        path (str | os.PathLike): The list, or its URL for MMEngine's file
            backends.

    Yields:
        str: Its lines, without what ends them.

    Raises:
        OSError: If it is missing, or no regular file.
        ValueError: If it is neither UTF-8 nor UTF-16.
    """
    from mmengine import fileio

    check_regular(path)
    content = fileio.get(path)
    # Editors of Windows begin a text with a mark.
    utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = 'utf-16' if utf16 else 'utf-8-sig'
    if not utf16 and b'\0' in content[:2]:  # of UTF-16 without its mark
        encoding = f'utf-16-{"be" if content[:1] == bytes(1) else "le"}'
    # Lines are taken from one block of bytes.
    lines = io.TextIOWrapper(io.BytesIO(content), encoding, newline='\n')
    try:
        for line in lines:
            yield line.rstrip('\r\n')
    except UnicodeError as error:
        raise ValueError(
            f'cannot read the list {os.fspath(path)!r}: save it as UTF-8'
        ) from error


@contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[Path]:
    """Write a file or a folder that appears only when it is complete.

    Args:
        path (str | os.PathLike): The destination. Its parent is made if
            needed. It replaces an older file or an empty folder.

    Yields:
        Path: A temporary path with the same name, to write to. An exception
        removes it.
    """
    path = Path(os.path.abspath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    # On the same file system renaming is atomic.
    with tempfile.TemporaryDirectory(
        prefix=f'.{path.name}-', dir=path.parent
    ) as folder:
        temporary = Path(folder) / path.name
        try:
            yield temporary
            os.replace(temporary, path)
        except OSError as error:
            if error.errno and error.filename is None:  # such as a full disk
                error.filename = str(path)
            raise


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a text file, whole or not at all.

    Args:
        path (str | os.PathLike): The file.
        text (str): Its content.
    """
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding='utf-8')


def write_json(path: str | os.PathLike, data: dict) -> None:
    """Write a JSON file, whole or not at all.

    Args:
        path (str | os.PathLike): The file.
        data (dict): Content that json can write.
    """
    write_text(path, json.dumps(data, indent=2) + '\n')


def write_figure(path: str | os.PathLike, figure: 'Figure') -> None:
    """Write a figure of matplotlib, whole or not at all.

    Args:
        path (str | os.PathLike): The picture. Its suffix is the format.
        figure (Figure): The figure.
    """
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # names may have dollar signs
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=130)
