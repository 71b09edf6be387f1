# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Address schemes for which MMEngine uses our reader of checkpoints.

``mmmoca-file://FILE`` loads the whole file. If it is the authors' full model,
its tensors are renamed as in :class:`~mmmoca.models.MOCA`.
``mmmoca-teacher://FILE`` and ``mmmoca-student://FILE`` load one encoder of the
file. FILE may be a URL.
These addresses work wherever MMEngine accepts a checkpoint.
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
    """An address that carries its checkpoint in memory for one load.

    In this way, a file that was read for a check is passed to MMEngine's
    initialisers, so that it is not read twice.

    Args:
        address (str): The address.
        checkpoint (dict): The checkpoint at this address.
    """

    def __new__(cls, address: str, checkpoint: dict) -> 'ReadAddress':
        """Make the address."""
        self = super().__new__(cls, address)
        self._checkpoint = checkpoint
        return self

    def __deepcopy__(self, memo: dict) -> 'ReadAddress':
        """Return itself: MMEngine deep-copies the configs of initialisers."""
        return self

    def take(self) -> dict | None:
        """Return the checkpoint on the first call, and None on later ones."""
        checkpoint, self._checkpoint = self._checkpoint, None
        return checkpoint


def _in_memory(address: str) -> dict | None:
    return address.take() if isinstance(address, ReadAddress) else None


def guarded(path: str | os.PathLike) -> str:
    """Return an address for which MMEngine uses our reader of checkpoints.

    Args:
        path (str | os.PathLike): A path, or an address that
            :func:`local_file` accepts.

    Returns:
        str: :data:`FILE_SCHEME` followed by the path; or the path itself, if
        it already begins with one of this package's schemes.
    """
    path = os.fspath(path)
    return path if path.startswith(_OURS) else FILE_SCHEME + path


@CheckpointLoader.register_scheme(prefixes=FILE_SCHEME)
def load_from_file(filename: str, map_location: Any = None) -> dict:
    """Load a checkpoint without running code that it contains.

    Args:
        filename (str): :data:`FILE_SCHEME` followed by a path or an address.
        map_location (Any): Not used, because tensors are copied to the
            model's device in any case.

    Returns:
        dict: The content of the file. If it is the authors' full model, its
        tensors are renamed as in :class:`~mmmoca.models.MOCA`.

    Raises:
        CheckpointError: See :func:`local_file` and :func:`read_converted`.
    """
    if checkpoint := _in_memory(filename):
        return checkpoint
    with local_file(filename.removeprefix(FILE_SCHEME)) as path:
        checkpoint = read_converted(path)
    meta = checkpoint.get('meta')
    if isinstance(meta, dict):
        # On resuming, MMEngine would run the text of `config` as code.
        meta.pop('config', None)
    return checkpoint


@CheckpointLoader.register_scheme(prefixes=list(_ENCODERS))
def load_from_mmmoca(filename: str, map_location: Any = None) -> dict:
    """Load the ViT from a file of any known layout.

    Args:
        filename (str): ``mmmoca-teacher://`` or ``mmmoca-student://``,
            followed by a path or an address.
        map_location (Any): Not used, see :func:`load_from_file`.

    Returns:
        dict: A checkpoint with ``state_dict`` and ``meta``. Each tensor has
        its name in mmpretrain's ViT, with the prefix ``backbone.``.

    Raises:
        CheckpointError: See :func:`local_file` and :func:`read_backbone`.
    """
    if checkpoint := _in_memory(filename):
        return checkpoint
    scheme, source = filename.split('://', 1)
    with local_file(source) as path:
        backbone = read_backbone(path, scheme.removeprefix('mmmoca-'))
    for change in backbone.changes:
        print_log(f'{source}: {change}', logger='current')
    return backbone_checkpoint(backbone, source)
