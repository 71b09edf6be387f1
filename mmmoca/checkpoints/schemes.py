# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Schemes by which MMEngine reads checkpoints with our reader.

``mmmoca-file://FILE`` is the whole file (the authors' one in our names), and
``mmmoca-teacher://FILE`` its encoder. They work wherever MMEngine takes a
checkpoint, for URLs too.
"""

import os
from typing import Any

from mmengine.logging import print_log
from mmengine.runner.checkpoint import CheckpointLoader

from .backbone import read_backbone
from .read import local_file
from .release import read_converted
from .write import backbone_checkpoint

FILE_SCHEME = 'mmmoca-file://'
_ENCODERS = ('mmmoca-teacher://', 'mmmoca-student://')
_OURS = (FILE_SCHEME, *_ENCODERS)


class ReadAddress(str):
    """An address whose checkpoint is in memory, until it is taken.

    MMEngine's initialisers get one where the file was read to be checked, so
    that it is not read twice.

    Args:
        address (str): The address.
        checkpoint (dict): What it holds.
    """

    def __new__(cls, address: str, checkpoint: dict) -> 'ReadAddress':
        """Make the address."""
        self = super().__new__(cls, address)
        self._checkpoint = checkpoint
        return self

    def __deepcopy__(self, memo: dict) -> 'ReadAddress':
        """Return itself: MMEngine copies the configs of its initialisers."""
        return self

    def take(self) -> dict | None:
        """Return what it holds, once."""
        checkpoint, self._checkpoint = self._checkpoint, None
        return checkpoint


def _in_memory(address: str) -> dict | None:
    return address.take() if isinstance(address, ReadAddress) else None


def guarded(path: str | os.PathLike) -> str:
    """Return the address by which MMEngine reads a checkpoint with our reader.

    Args:
        path (str | os.PathLike): A path, or an address of
            :func:`local_file`.

    Returns:
        str: With :data:`FILE_SCHEME` before it, unless it has one of this
        package's schemes already.
    """
    path = os.fspath(path)
    return path if path.startswith(_OURS) else FILE_SCHEME + path


@CheckpointLoader.register_scheme(prefixes=FILE_SCHEME)
def load_from_file(filename: str, map_location: Any = None) -> dict:
    """Load a checkpoint without running what it holds.

    Args:
        filename (str): The path or address after :data:`FILE_SCHEME`.
        map_location (Any): Not used: the tensors are copied to the model's
            device in any case.

    Returns:
        dict: What it holds, the authors' file in the names of
        :class:`~mmmoca.models.MOCA`.

    Raises:
        CheckpointError: See :func:`read_checkpoint`.
    """
    if checkpoint := _in_memory(filename):
        return checkpoint
    with local_file(filename.removeprefix(FILE_SCHEME)) as path:
        checkpoint = read_converted(path)
    meta = checkpoint.get('meta')
    if isinstance(meta, dict):
        # MMEngine would run this text as Python when it resumes.
        meta.pop('config', None)
    return checkpoint


@CheckpointLoader.register_scheme(prefixes=list(_ENCODERS))
def load_from_mmmoca(filename: str, map_location: Any = None) -> dict:
    """Load the ViT of a file of any known layout as ``backbone.*``.

    Args:
        filename (str): The path or address after ``mmmoca-teacher://`` or
            ``mmmoca-student://``.
        map_location (Any): Not used, see :func:`load_from_file`.

    Returns:
        dict: ``state_dict`` with the names of mmpretrain's ViT after
        ``backbone.``, and ``meta``.

    Raises:
        CheckpointError: See :func:`read_backbone`.
    """
    if checkpoint := _in_memory(filename):
        return checkpoint
    scheme, source = filename.split('://', 1)
    with local_file(source) as path:
        backbone = read_backbone(path, scheme.removeprefix('mmmoca-'))
    for change in backbone.changes:
        print_log(f'{source}: {change}', logger='current')
    return backbone_checkpoint(backbone, source)
