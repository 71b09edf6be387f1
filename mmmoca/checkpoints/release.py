# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Converts the authors' released model to one of this package."""

import os
import re

from torch import Tensor

from .errors import CheckpointError
from .locate import tensors_of
from .names import TIMM
from .normal_form import position_grid
from .read import read_checkpoint
from .write import file_record

# Beginnings of names in the authors' release and in this package. In the
# release, the names of a ViT's tensors continue as in timm.
_EXTRACTOR = 'bow_extractor.bow_extractor.0.'
_BLOCKS = 'decoder_blocks_cls_pt.', 'decoder_cls_pt.blocks.'
_RELEASED = {
    'encoder.': 'backbone.',
    'encoder_teacher.': 'teacher.',
    'decoder_cls_pt.': 'neck.',
    'norm_cls_pt.': 'neck.input_norm.',
    'decoder_embed_cls_pt.': 'neck.projection.',
    'decoder_norm_cls_pt.': 'neck.norm.',
    'mask_token_cls_pt': 'neck.mask_token',
    f'{_EXTRACTOR}_embedding_ptr': 'codebook.pointer',
    f'{_EXTRACTOR}_embedding': 'codebook.words',
    f'{_EXTRACTOR}_dist_norm': 'codebook.msd',
} | {
    f'{theirs}.layers_w.0.{module}': f'head.{ours}.{name}'
    for theirs, ours in (
        ('encoder_pred', 'img_generator'),
        ('decoder_pred', 'loc_generator'),
    )
    for module, name in (
        ('generator.b0_fc.', 'fc1.'),
        ('generator.b0_bn.', 'bn.'),
        ('generator.b0_last_layer.', 'fc2.'),
        ('skip.', 'skip.'),
    )
}
# Constants, derived tables, and statistics that are not needed: BatchNorm uses
# the statistics of the current codebook, and `_dist_norm_prev` equals
# `_dist_norm` whenever a checkpoint is saved.
_DROPPED = re.compile(
    r'decoder_pos_embed|(en|de)coder_pred\.scale'
    r'|.*\.b0_bn\.(running_|num_batches)'
    r'|.*\._(track_num_batches|dist_norm_prev)'
)


def convert_release_name(name: str) -> str | None:
    """Turn a name in the authors' full model into one in :class:`MOCA`.

    Args:
        name (str): Key of the released state dict.

    Returns:
        str | None: The key in :class:`MOCA`; None if there is no counterpart.

    Raises:
        CheckpointError: If the released model has no such name.
    """
    if _DROPPED.match(name):
        return None
    name = name.replace(*_BLOCKS)
    for theirs, ours in _RELEASED.items():
        if name.startswith(theirs):
            return ours + TIMM.to_mmpretrain(name.removeprefix(theirs))
    raise CheckpointError(
        f'{name!r} belongs to a variant of MOCA that is not supported'
    )


def read_converted(path: str | os.PathLike, lazy: bool = False) -> dict:
    """Read a checkpoint, and convert it if it is the authors' full model.

    Args:
        path (str | os.PathLike): See :func:`read_checkpoint`.
        lazy (bool): See :func:`read_checkpoint`.

    Returns:
        dict: The content of the file, which :func:`convert_release` has
        converted if it is the authors' full model.

    Raises:
        CheckpointError: See :func:`read_checkpoint`,
            :func:`convert_release`.
    """
    checkpoint = read_checkpoint(path, lazy)
    if _released_state(checkpoint) is None:
        return checkpoint
    return convert_release(checkpoint, path)[0]


def convert_release(
    checkpoint: dict, source: str | os.PathLike
) -> tuple[dict, list[str]]:
    """Convert the authors' file to a checkpoint that pretraining starts from.

    Teacher, student, decoder, prototype generators and codebook are kept, the
    codebook with its pointer and its mu (see :class:`OnlineCodebook`). The
    optimiser and all schedules start anew.

    Args:
        checkpoint (dict): What :func:`read_checkpoint` returned.
        source (str | os.PathLike): Path or URL of the file.

    Returns:
        tuple[dict, list[str]]: A checkpoint with ``state_dict`` and ``meta``,
        for ``load_from`` of a pretraining config; and the names that have no
        counterpart in it.

    Raises:
        CheckpointError: If the file is not the authors' full model, or is a
            variant of it that this package does not support.
    """
    state = _released_state(checkpoint)
    if state is None:
        raise CheckpointError(
            f"{source} is not the authors' full model, whose names begin with "
            "'encoder_teacher.' and 'encoder.'. If the file contains only a "
            'backbone, convert it with tools/model_converters/convert.py'
        )
    names = {name: convert_release_name(name) for name in state}
    dropped = [old for old, new in names.items() if new is None]
    converted = {new: state[old] for old, new in names.items() if new}
    for name in converted.keys() & {'codebook.pointer', 'codebook.msd'}:
        converted[name] = converted[name].reshape(())  # (1,) -> ()
    grid = position_grid(None, converted['teacher.pos_embed'])
    record = file_record(source, layout='moca', which='full', grid=grid)
    return dict(state_dict=converted, meta=dict(mmmoca=record)), dropped


def _released_state(checkpoint: dict) -> dict[str, Tensor] | None:
    """Return the tensors of the authors' full model, or None."""
    for state in tensors_of(checkpoint).values():
        if 'encoder_teacher.cls_token' in state:
            return state
    return None
