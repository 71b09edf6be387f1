# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""``mmmoca-teacher://FILE`` wherever MMEngine takes a checkpoint."""

from typing import Any

from mmengine.runner.checkpoint import CheckpointLoader

from .layouts import read_backbone
from .writing import backbone_checkpoint

__all__ = ['SCHEME', 'load_from_mmmoca']

SCHEME = 'mmmoca-{which}://'


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
