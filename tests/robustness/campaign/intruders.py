# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checkpoints that others have made to run code, through every way in.

Nothing of it may run, and the error must name the file.
"""

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path

from ...helpers.checkpoint_files import checkpoint
from ..payloads import write_payload
from .trials import Trial
from .ways_in import ways_in


def trials(folder: Path, count: int) -> Iterator[Trial]:
    """Two payloads through every way in.

    The form that people try first, and the one that got through. With a small
    ``count`` only ``4 * count`` ways, evenly spread.
    """
    ways = ways_in(folder)
    marker = folder / 'it_ran'
    names = list(ways)
    for name in names[:: max(1, len(names) // (4 * count))]:
        for form in ('archive', 'lookup'):
            path = folder / f'{form}_{len(name)}.pth'
            write_payload(path, marker, form, checkpoint('mmmoca')[0])
            problem = refused(name, path, marker, ways[name])
            yield Trial(f'runs code ({form})', name, problem)


def refused(name: str, path: Path, marker: Path, way: Callable) -> str:
    """What is wrong with how a way in meets a file, '' if nothing."""
    said = 'went on'
    named = False
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            way(path)
    except Exception as error:
        said = f'{type(error).__name__}: {error}'.strip()[-400:]
        # Some ways find it by another name.
        named = path.stem in said or (
            name.endswith('--resume') and '_9.' in said
        )
    said = said.replace('\n', ' ')
    if marker.exists():
        marker.rmdir()
        return f'IT RAN: {said}'
    return '' if named else said
