# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Writes files atomically, reads lists, and checks paths."""

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

# Parts that can lead a path out of its folder: .., the scheme of another file
# backend, or a null byte.
_LEADS_OUT = re.compile(r'(^|/)\.\.(/|$)|://|\0')


def outside(folder: str, paths: Iterable[str]) -> list[str]:
    """Find the paths that are outside a folder.

    Symbolic links are trusted: the owner of the folder made them.

    Args:
        folder (str): The folder. If it is empty, all paths are allowed.
        paths (Iterable[str]): Paths that were joined to the folder by
            ``os.path.join``, which keeps absolute paths as they are.

    Returns:
        list[str]: Paths that do not begin with the folder, or that contain
        ``..``, ``://`` or a null byte after it.
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
    """Refuse a path that is not a regular file.

    Reading a pipe or a device may never end.

    Args:
        path (str | os.PathLike): The path to read. URLs and missing files
            pass this check: the code that reads them reports failures.

    Raises:
        OSError: If the path exists and is not a regular file.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # the latter for a null byte
        return
    if not stat.S_ISREG(mode):
        raise OSError(f'{path} is not a regular file')


def read_lines(path: str | os.PathLike) -> Iterator[str]:
    """Read the lines of a text file that was written on any system.

    Args:
        path (str | os.PathLike): The file, or its URL for MMEngine's file
            backends.

    Yields:
        str: A line, without its line break.

    Raises:
        OSError: If the file is missing, or is not a regular file.
        ValueError: If its encoding is neither UTF-8 nor UTF-16.
    """
    from mmengine import fileio

    check_regular(path)
    content = fileio.get(path)
    # Windows editors begin a text file with a byte order mark.
    utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = 'utf-16' if utf16 else 'utf-8-sig'
    if not utf16 and b'\0' in content[:2]:  # UTF-16 without a mark
        encoding = f'utf-16-{"be" if content[:1] == bytes(1) else "le"}'
    # Lines are decoded one by one: a list of all of them takes more memory.
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
        path (str | os.PathLike): The destination. Its parent folder is made
            if needed. A file replaces an older file at this path; a folder
            replaces only an empty folder.

    Yields:
        Path: A temporary path with the same name, to write to. It is removed
        if an exception is raised.
    """
    path = Path(os.path.abspath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    # Renaming within a file system is atomic.
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
    """Write a matplotlib figure, whole or not at all.

    Args:
        path (str | os.PathLike): The image file. Its suffix sets the format.
        figure (Figure): The figure.
    """
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # a dollar sign is not a formula
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=130)
