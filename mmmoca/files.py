# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Files and folders that appear whole or not at all."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ['whole', 'write_figure', 'write_json', 'write_text']


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
    with whole(path) as temporary:
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
    with whole(path) as temporary:
        figure.savefig(temporary, dpi=dpi)
