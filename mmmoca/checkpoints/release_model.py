# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The authors' full model as a checkpoint of :class:`~mmmoca.models.MOCA`."""

import os

import torch
from torch import Tensor, nn

from mmmoca.registry import MODELS

from .grids import position_grid
from .reading import CheckpointError, read_checkpoint, tensors_of
from .records import file_record
from .release_keys import convert_release_name, convert_release_state_dict

__all__ = [
    'convert_release',
    'convert_release_tensors',
    'convert_whole_release',
    'in_our_names',
    'model_of_shapes',
]


def convert_release(path: str | os.PathLike) -> tuple[dict, list[str]]:
    """Convert the authors' file to a checkpoint that pretraining starts from.

    Teacher, student, decoder, prototype generators, codebook, its pointer
    and mu are taken over; the state of the optimiser and all schedules start
    anew.

    Args:
        path (str | os.PathLike): The authors' file, of the full model.

    Returns:
        Tuple[dict, List[str]]: ``state_dict`` and ``meta``, for ``load_from``
        of a pretraining config; and the names that have no counterpart.

    Raises:
        CheckpointError: If the file cannot be read, or is not of the
            authors' full model.
    """
    checkpoint, dropped = convert_whole_release(read_checkpoint(path), path)
    if 'codebook.words' not in checkpoint['state_dict']:
        raise CheckpointError(
            f'{path} has no codebook (bow_extractor.): pretraining cannot go '
            'on from it, but its backbones can be converted'
        )
    return checkpoint, dropped


def convert_whole_release(
    checkpoint: dict, source: str | os.PathLike
) -> tuple[dict, list[str]]:
    """Convert what is in the authors' file to a checkpoint of this package.

    Args:
        checkpoint (dict): What :func:`read_checkpoint` returned.
        source (str | os.PathLike): Path or URL of the file.

    Returns:
        Tuple[dict, List[str]]: ``state_dict`` and ``meta``; and the names
        that have no counterpart.

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
        object: ``state_dict`` and ``meta`` of :func:`convert_whole_release`;
        of any other file what was given.

    Raises:
        CheckpointError: If it is of a variant that is not built here.
    """
    model = checkpoint.get('model') if isinstance(checkpoint, dict) else None
    if isinstance(model, dict) and 'encoder_teacher.cls_token' in model:
        checkpoint, _ = convert_whole_release(checkpoint, source)
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


def model_of_shapes(
    state_dict: dict[str, Tensor], grid: tuple[int, int]
) -> nn.Module:
    """The MOCA model that a state dict must be of, without any values.

    Args:
        state_dict (Dict[str, Tensor]): Names of :class:`MOCA`.
        grid (Tuple[int, int]): Rows and columns of its patches.

    Returns:
        nn.Module: On the 'meta' device. Only names and shapes are right.
    """
    words, dims = state_dict['codebook.words'].shape
    _, channels, *patch = state_dict[
        'backbone.patch_embed.projection.weight'
    ].shape
    hidden = state_dict['backbone.layers.0.ffn.layers.0.0.weight'].shape[0]
    neck = None
    if 'neck.projection.weight' in state_dict:
        neck = dict(
            type='mmmoca.CondenserNeck',
            embed_dims=state_dict['neck.projection.weight'].shape[0],
            depth=_depth(state_dict, 'neck.layers.'),
            num_heads=1,
            condenser='neck.input_norm.weight' in state_dict,
        )
    config = dict(
        type='mmmoca.MOCA',
        backbone=dict(
            type='mmmoca.MOCAViT',
            arch=dict(
                embed_dims=dims,
                num_layers=_depth(state_dict, 'backbone.layers.'),
                num_heads=1,
                feedforward_channels=hidden,
            ),
            img_size=(grid[0] * patch[0], grid[1] * patch[1]),
            patch_size=tuple(patch),
            in_channels=channels,
            tap_layer=1,
        ),
        codebook=dict(
            type='mmmoca.OnlineCodebook',
            num_words=words,
            num_new_words=1,
            border=0,
        ),
        neck=neck,
        head=dict(type='mmmoca.AssignmentHead', lambda_img=0.5 if neck else 1),
    )
    with torch.device('meta'):
        return MODELS.build(config)


def _depth(state_dict: dict[str, Tensor], prefix: str) -> int:
    depth = len(prefix.split('.')) - 1
    return 1 + max(
        int(name.split('.')[depth])
        for name in state_dict
        if name.startswith(prefix)
    )
