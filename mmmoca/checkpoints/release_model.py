# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The authors' full model as a checkpoint of :class:`~mmmoca.models.MOCA`."""

import os

from torch import Tensor

from .grids import position_grid
from .reading import CheckpointError, tensors_of
from .records import file_record
from .release_keys import convert_release_name, convert_release_state_dict

__all__ = [
    'convert_release',
    'convert_release_tensors',
    'in_our_names',
]


def convert_release(
    checkpoint: dict, source: str | os.PathLike
) -> tuple[dict, list[str]]:
    """Convert the authors' file to a checkpoint that pretraining starts from.

    Teacher, student, decoder, prototype generators, codebook, its pointer
    and mu are taken over; the state of the optimiser and all schedules start
    anew.

    Args:
        checkpoint (dict): What :func:`read_checkpoint` returned.
        source (str | os.PathLike): Path or URL of the file.

    Returns:
        Tuple[dict, List[str]]: ``state_dict`` and ``meta``, for ``load_from``
        of a pretraining config; and the names that have no counterpart.

    Raises:
        CheckpointError: If it is not of the authors' full model.
    """
    converted, dropped = convert_release_tensors(checkpoint, source)
    grid = position_grid(None, converted['teacher.pos_embed'])
    meta = dict(mmmoca=file_record(source, 'moca', 'full', grid))
    return dict(state_dict=converted, meta=meta), dropped


def in_our_names(checkpoint: object, source: str | os.PathLike) -> object:
    """Convert what a file holds if it is the authors' full model.

    Args:
        checkpoint (object): What a reader returned.
        source (str | os.PathLike): Path or URL of the file.

    Returns:
        object: ``state_dict`` and ``meta`` of :func:`convert_release`; of any
        other file what was given.

    Raises:
        CheckpointError: If it is of a variant that is not built here.
    """
    model = checkpoint.get('model') if isinstance(checkpoint, dict) else None
    if isinstance(model, dict) and 'encoder_teacher.cls_token' in model:
        checkpoint, _ = convert_release(checkpoint, source)
    return checkpoint


def convert_release_tensors(
    checkpoint: dict, source: str | os.PathLike
) -> tuple[dict[str, Tensor], list[str]]:
    """Convert what is in the authors' file.

    Args:
        checkpoint (dict): What :func:`read_checkpoint` returned.
        source (str | os.PathLike): What to call it in errors.

    Returns:
        Tuple[Dict[str, Tensor], List[str]]: Names and shapes of
        :class:`MOCA`; and the names that have no counterpart.

    Raises:
        CheckpointError: If it is not of the authors' full model.
    """
    for state in tensors_of(checkpoint).values():
        if 'encoder_teacher.cls_token' in state:
            break
    else:
        raise CheckpointError(
            f"{source} is not the authors' full model, which has names after "
            'encoder_teacher. and encoder.: convert a backbone alone by '
            'tools/model_converters/extract_backbone.py'
        )
    try:
        converted = convert_release_state_dict(state)
        dropped = [k for k in state if convert_release_name(k) is None]
    except KeyError as error:
        raise CheckpointError(
            f'{source} is of a variant of MOCA that is not built here: '
            f'{error.args[0]}'
        ) from error
    return converted, dropped
