# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""How MMEngine reads checkpoints by our reader: schemes of our own.

``mmmoca-file://FILE`` is the file as it is, ``mmmoca-teacher://FILE`` its
encoder. Both work wherever MMEngine takes a checkpoint, for URLs too.
"""

import os
from typing import Any

from mmengine.runner.checkpoint import CheckpointLoader

from .layouts import read_backbone
from .reading import local_file, read_checkpoint
from .release_model import in_our_names
from .starts import START, read_start
from .writing import backbone_checkpoint

__all__ = ['FILE', 'SCHEME', 'guarded', 'load_from_mmmoca', 'load_from_start']

FILE = 'mmmoca-file://'
SCHEME = 'mmmoca-{which}://'


def guarded(path: str | os.PathLike) -> str:
    """The address by which MMEngine reads a checkpoint with our reader.

    Args:
        path (str | os.PathLike): A path, or an address that MMEngine knows.

    Returns:
        str: With :data:`FILE` before paths and URLs; other addresses, such
        as s3:// and those that are guarded already, stay as they are.
    """
    path = os.fspath(path)
    scheme, found, _ = path.partition('://')
    return path if found and scheme not in ('http', 'https') else FILE + path


@CheckpointLoader.register_scheme(prefixes=FILE)
def load_from_file(filename: str, map_location: Any = None) -> dict:
    """Load a checkpoint without running what it holds.

    Args:
        filename (str): The path or URL after :data:`FILE`.
        map_location (Any): Not used: the tensors are copied to the model's
            device in any case.

    Returns:
        dict: What it holds, the authors' file in the names of
        :class:`~mmmoca.models.MOCA`.

    Raises:
        CheckpointError: See :func:`read_checkpoint`.
    """
    path = local_file(filename.removeprefix(FILE))
    checkpoint = read_checkpoint(path)
    meta = checkpoint.get('meta')
    if isinstance(meta, dict):
        # MMEngine would run this text as Python when it resumes.
        meta.pop('config', None)
    return in_our_names(checkpoint, path)


@CheckpointLoader.register_scheme(
    prefixes=[SCHEME.format(which=which) for which in ('teacher', 'student')]
)
def load_from_mmmoca(filename: str, map_location: Any = None) -> dict:
    """Load the ViT of a file of any layout known as ``backbone.*``.

    Args:
        filename (str): The path or URL after ``mmmoca-teacher://`` or
            ``mmmoca-student://``.
        map_location (Any): Not used, see :func:`load_from_file`.

    Returns:
        dict: ``state_dict`` with the names of mmpretrain's ViT after
        ``backbone.``, and ``meta``.

    Raises:
        CheckpointError: See :func:`read_backbone`.
    """
    scheme, path = filename.split('://', 1)
    which = scheme.removeprefix('mmmoca-')
    path = local_file(path)
    return backbone_checkpoint(read_backbone(path, which), path)


@CheckpointLoader.register_scheme(prefixes=START)
def load_from_start(filename: str, map_location: Any = None) -> dict:
    """Load what pretraining starts from, for ``load_from`` of its configs.

    Args:
        filename (str): The path after ``mmmoca-start://``.
        map_location (Any): Not used, see :func:`load_from_file`.

    Returns:
        dict: See :func:`read_start`.

    Raises:
        CheckpointError: See :func:`read_start`.
    """
    return read_start(filename.removeprefix(START))
