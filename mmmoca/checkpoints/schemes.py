# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Schemes by which MMEngine reads checkpoints with our reader.

``mmmoca-file://FILE`` is the file as it is, ``mmmoca-teacher://FILE`` its
encoder. They work wherever MMEngine takes a checkpoint, for URLs too.
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


def guarded(path: str | os.PathLike) -> str:
    """The address by which MMEngine reads a checkpoint with our reader.

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
    scheme, source = filename.split('://', 1)
    with local_file(source) as path:
        backbone = read_backbone(path, scheme.removeprefix('mmmoca-'))
    for change in backbone.changes:
        print_log(f'{source}: {change}', logger='current')
    return backbone_checkpoint(backbone, source)
