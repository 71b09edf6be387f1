# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What MMEngine reads checkpoints by: our reader, and a scheme of our own.

``mmmoca-teacher://FILE`` works wherever MMEngine takes a checkpoint. The
authors' file, by path or URL, is read in the names of :class:`MOCA`.
"""

import functools
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any

from mmengine.runner import checkpoint as mmengine_checkpoint
from mmengine.runner.checkpoint import CheckpointLoader

from .layouts import read_backbone
from .reading import CheckpointError, harmless, read_checkpoint, refusal
from .release_model import in_our_names
from .starts import START, read_start
from .writing import backbone_checkpoint

__all__ = ['SCHEME', 'load_from_mmmoca', 'load_from_start']

SCHEME = 'mmmoca-{which}://'


def _guarded(load: Callable) -> Callable:
    """A reader of MMEngine's that lets no code in, and converts releases."""

    @functools.wraps(load)
    def guarded(filename: str, map_location: Any = None) -> dict:
        try:
            with harmless():
                checkpoint = load(filename, map_location)
        except (CheckpointError, OSError):
            raise
        except UnpicklingError as error:
            raise refusal(filename, error) from error
        except Exception as error:
            raise CheckpointError(
                f'{filename} cannot be read: {type(error).__name__}: {error}'
            ) from error
        # MMEngine would run this text as Python when it resumes.
        meta = checkpoint.get('meta') if isinstance(checkpoint, dict) else None
        if isinstance(meta, dict):
            meta.pop('config', None)
        return in_our_names(checkpoint, filename)

    return guarded


def load_from_local(filename: str, map_location: Any = None) -> dict:
    """Read a local file in the place of MMEngine.

    Args:
        filename (str): Its path.
        map_location (Any): Not used, see :func:`load_from_mmmoca`.

    Returns:
        dict: What it holds.

    Raises:
        CheckpointError: See :func:`read_checkpoint`.
    """
    return read_checkpoint(filename)


CheckpointLoader.register_scheme('', load_from_local, force=True)
for _prefix, _load in list(CheckpointLoader._schemes.items()):
    CheckpointLoader.register_scheme(_prefix, _guarded(_load), force=True)
# The forks of MMEngine add these to what a checkpoint may call while they
# read one, `getattr` among them, and take them off after it.
mmengine_checkpoint.get_torch_safe_globals = list


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
