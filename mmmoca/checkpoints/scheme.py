# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What MMEngine reads checkpoints by: our reader, and a scheme of our own.

``mmmoca-teacher://FILE`` works wherever MMEngine takes a checkpoint.
"""

from typing import Any

from mmengine.runner.checkpoint import CheckpointLoader

from .layouts import read_backbone
from .reading import read_checkpoint
from .starts import START, read_start
from .writing import backbone_checkpoint

__all__ = ['SCHEME', 'load_from_mmmoca', 'load_from_start']

SCHEME = 'mmmoca-{which}://'


@CheckpointLoader.register_scheme(prefixes='', force=True)
def load_from_local(filename: str, map_location: Any = None) -> dict:
    """Read a local file in the place of MMEngine.

    Args:
        filename (str): Its path.
        map_location (Any): Not used, see :func:`load_from_mmmoca`.

    Returns:
        dict: What it holds, without ``config`` of its ``meta``: a text that
        MMEngine would run as Python when it resumes.

    Raises:
        CheckpointError: See :func:`read_checkpoint`.
    """
    checkpoint = read_checkpoint(filename)
    if isinstance(checkpoint.get('meta'), dict):
        checkpoint['meta'].pop('config', None)
    return checkpoint


@CheckpointLoader.register_scheme(
    prefixes=[SCHEME.format(which=which) for which in ('teacher', 'student')]
)
def load_from_mmmoca(filename: str, map_location: Any = None) -> dict:
    """Load the ViT of a file of any layout known as ``backbone.*``.

    MMEngine calls it for ``load_from`` and ``Pretrained`` alike.

    Args:
        filename (str): The path after ``mmmoca-teacher://`` or
            ``mmmoca-student://``.
        map_location (Any): Not used: the tensors are copied to the model's
            device in any case.

    Returns:
        dict: ``state_dict`` with the names of mmpretrain's ViT after
        ``backbone.``, and ``meta``.

    Raises:
        CheckpointError: See :func:`read_backbone`.
    """
    scheme, path = filename.split('://', 1)
    which = scheme.removeprefix('mmmoca-')
    return backbone_checkpoint(read_backbone(path, which), path)


@CheckpointLoader.register_scheme(prefixes=START)
def load_from_start(filename: str, map_location: Any = None) -> dict:
    """Load what pretraining starts from, for ``load_from`` of its configs.

    Args:
        filename (str): The path after ``mmmoca-start://``.
        map_location (Any): Not used, see :func:`load_from_mmmoca`.

    Returns:
        dict: See :func:`read_start`.

    Raises:
        CheckpointError: See :func:`read_start`.
    """
    return read_start(filename.removeprefix(START))
