# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Files of features that are not complete: what is done survives a stop."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from mmengine.dist import barrier, get_rank
from numpy.lib.format import open_memmap

from mmmoca.checkpoints import FolderLock
from mmmoca.files import write_json
from mmmoca.messages import listed

from .feature_files import slices, write_feature_file

__all__ = ['UnfinishedFile', 'check_same']


def check_same(path: Path, earlier: dict, about: dict) -> None:
    """Refuse to go on with features of something else.

    Args:
        path (Path): What is there.
        earlier (dict): Its record.
        about (dict): What is wanted.

    Raises:
        FileExistsError: If they differ in what features depend on.
    """
    # Where the checkpoint lies does not matter, its weights do.
    passing = ('checkpoint', 'layout', 'which', 'version')
    differ = [
        key
        for key in about
        if key not in passing and earlier.get(key) != about[key]
    ]
    if differ:
        raise FileExistsError(
            f'{path} was made from something else ({listed(differ)} differ): '
            'give another OUT, or delete it'
        )


class UnfinishedFile:
    """The folder of what is done so far of a file of features.

    Made and written by all ranks together.

    Args:
        out (Path): The file that it becomes.
        about (dict): What the features are made from.
        block (int): Images of a block, where nothing is there yet.

    Raises:
        BlockingIOError: If another process writes ``out``.
        FileExistsError: See :func:`check_same`.
    """

    def __init__(self, out: Path, about: dict, block: int) -> None:
        self.out = out
        self.folder = out.with_name(f'{out.name}.incomplete')
        self.rows = self.folder / 'features.npy'
        record = self.folder / 'about.json'
        if get_rank() == 0:
            if record.is_file():
                check_same(self.folder, json.loads(record.read_text()), about)
            try:
                self._lock = FolderLock(self.folder, 'OUT')
            except RuntimeError as error:
                raise BlockingIOError(str(error)) from error
            if not record.is_file():
                shape = about['number'], about['width']
                open_memmap(self.rows, 'w+', np.float32, shape)
                write_json(record, dict(about, block=block))
        barrier()
        self.about = json.loads(record.read_text())
        self.block = self.about.pop('block')

    def span(self, block: int) -> range:
        """The rows of a block."""
        start = block * self.block
        return range(start, min(start + self.block, self.about['number']))

    def left(self) -> list[int]:
        """The blocks that are not done."""
        done = {
            int(line)
            for file in self.folder.glob('done-*.txt')
            # A line that was cut off by a stop does not count.
            for line in file.read_text().split('\n')[:-1]
        }
        barrier()  # before any rank goes on writing them
        number = -(-self.about['number'] // self.block)
        return [block for block in range(number) if block not in done]

    def write(self, block: int, rows: np.ndarray) -> None:
        """Write the features of a block, then that it is done."""
        # Not through the map: a full disk is an error here, and a crash there.
        offset = open_memmap(self.rows, 'r').offset
        with open(self.rows, 'r+b') as file:
            file.seek(offset + self.span(block).start * rows[0].nbytes)
            file.write(rows.tobytes())
            file.flush()
            os.fsync(file.fileno())
        with open(self.folder / f'done-{get_rank()}.txt', 'a') as file:
            file.write(f'{block}\n')

    def finish(self, names: Sequence[str]) -> dict:
        """Let the file appear; what is recorded of it."""
        rows = open_memmap(self.rows, 'r')
        bad = [
            part.start + int(row)
            for part in slices(rows)
            for row in np.flatnonzero(np.isnan(rows[part, 0]))
        ]
        about = self.about | dict(unreadable=[names[row] for row in bad])
        write_feature_file(self.out, rows, names, about)
        self._lock.release()
        shutil.rmtree(self.folder)
        return about
