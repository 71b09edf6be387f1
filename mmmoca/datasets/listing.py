# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What lies in a folder on a disk, at any depth."""

import os
from collections.abc import Iterator
from pathlib import Path

from mmengine.fileio import LocalBackend

__all__ = ['FolderListing']


class FolderListing(LocalBackend):
    """:class:`LocalBackend` that lists a folder as one looks at it.

    Nothing hidden is listed, nor what lies in a hidden folder. Links are
    followed, but not back to a folder that they are in. A link that leads
    nowhere is listed as a file, so that whoever reads it can say so.
    """

    def list_dir_or_file(
        self,
        dir_path: str | os.PathLike,
        list_dir: bool = True,
        list_file: bool = True,
        suffix: str | tuple[str, ...] | None = None,
        recursive: bool = False,
    ) -> Iterator[str]:
        """List a folder, see :class:`LocalBackend`.

        Yields:
            str: Paths relative to the folder, in no order.

        Raises:
            PermissionError: If it, or a folder in it, may not be read.
        """
        path = Path(os.path.abspath(dir_path))
        above = tuple(_identity(folder) for folder in path.parents)
        for name, is_folder in _walk(path, '', recursive, above):
            if is_folder:
                wanted = list_dir
            else:
                wanted = list_file and name.endswith(suffix or '')
            if wanted:
                yield name


def _walk(
    folder: str | Path, prefix: str, recursive: bool, above: tuple
) -> Iterator[tuple[str, bool]]:
    """Names below a folder, and which of them are folders."""
    here = _identity(folder)
    if here in above:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith('.'):
                continue
            is_file, is_folder = _kind(entry)
            if is_file or is_folder:
                yield prefix + entry.name, is_folder
            if is_folder and recursive:
                inner = os.path.join(prefix, entry.name, '')
                yield from _walk(entry.path, inner, True, (*above, here))


def _identity(folder: str | Path) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _kind(entry: os.DirEntry) -> tuple[bool, bool]:
    """Whether an entry is a file, and whether it is a folder."""
    if not entry.is_symlink():  # no further question to the file system
        return entry.is_file(), entry.is_dir()
    path = entry.path
    is_file = os.path.isfile(path) or not os.path.exists(path)
    return is_file, not is_file and os.path.isdir(path)
