# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pretraining that starts from other weights.

``load_from='mmmoca-start://FILE'`` fills student and teacher, and from a file
of MOCA's also the rest of the model.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping

from torch import Tensor, nn, ones_like

from .layouts import find_backbone, record_of
from .reading import CheckpointError, read_checkpoint, tensors_of
from .weights import (
    LAYER_SCALE,
    PROJECTION,
    adapt_in_channels,
    resize_positions,
)
from .writing import convert_release, file_record, is_release

START = 'mmmoca-start://'
_ENCODERS = ('backbone', 'teacher')


def read_start(path: str | os.PathLike) -> dict:
    """Read what pretraining can start from.

    Args:
        path (str | os.PathLike): A file of any known layout. From a file of
            MOCA's, the teacher fills the teacher and the student the student.
            From any other, one encoder fills both: the teacher, if there is
            one.

    Returns:
        dict: ``state_dict`` with names of :class:`MOCA`, and ``meta``.

    Raises:
        CheckpointError: See :func:`read_backbone`. Registers are no error
            here.
    """
    path = os.fspath(path)
    checkpoint = read_checkpoint(path, lazy=True)
    if is_release(checkpoint):
        checkpoint, _ = convert_release(checkpoint, path)
    teacher = student = find_backbone(
        checkpoint, 'teacher', path, drop_registers=True
    )
    both = {f'{role}.cls_token' for role in _ENCODERS}
    groups = tensors_of(checkpoint).values()
    state = next((group for group in groups if group.keys() >= both), {})
    if state:
        student = find_backbone(checkpoint, 'student', path)
    state = {
        name: value
        for name, value in state.items()
        if _part(name) not in _ENCODERS
    }
    for role, encoder in zip(_ENCODERS, (student, teacher)):
        for name, value in encoder.state_dict.items():
            state[f'{role}.{name}'] = value
    about = file_record(path, teacher.layout, 'start', teacher.grid)
    about['changes'] = teacher.changes
    about['num_heads'] = record_of(teacher.meta).get('num_heads')
    return dict(state_dict=state, meta=dict(mmmoca=about))


def is_start(checkpoint: dict) -> bool:
    """Whether a checkpoint is what :func:`read_start` returned."""
    return record_of(checkpoint.get('meta')).get('which') == 'start'


def fit_start(
    checkpoint: dict, model: nn.Module, own: Mapping[str, Tensor]
) -> tuple[str, list[str]]:
    """Fit what was read to a model of pretraining, in place.

    Positions are resized and the patch projection is adapted to the model's
    channels. Codebook, decoder and prototype generators of other shapes are
    left as initialised. :func:`check_fit` compares the architectures.

    Args:
        checkpoint (dict): What :func:`read_start` returned.
        model (nn.Module): A :class:`MOCA`.
        own (Mapping[str, Tensor]): Its state dict.

    Returns:
        Tuple[str, List[str]]: How many of the names of each part of the
        model are filled; and what was changed, in words for a log.

    Raises:
        CheckpointError: If the model has no teacher.
    """
    state, about = checkpoint['state_dict'], checkpoint['meta']['mmmoca']
    source = about['source']
    if 'teacher.cls_token' not in own:
        raise CheckpointError(
            f'{START} is for pretraining, and {type(model).__name__} has no '
            f"teacher: write load_from='mmmoca-teacher://{source}'"
        )
    changes = list(about['changes'])
    vit = model.backbone
    channels = vit.patch_embed.projection.in_channels
    old = state[f'backbone.{PROJECTION}'].shape[1]
    if old != channels:
        changes.append(f'its {old} channels become {channels}')
    grid, target = about['grid'], tuple(vit.patch_resolution)
    if grid not in (None, target):
        changes.append(
            f'its positions are resized from {grid} to {target} patches'
        )
        about['grid'] = target
    for role in _ENCODERS:
        name = f'{role}.{PROJECTION}'
        state[name] = adapt_in_channels(state[name], channels)
        if grid is not None:
            positions = state[f'{role}.pos_embed']
            state[f'{role}.pos_embed'] = resize_positions(
                positions, grid, target, vit.interpolate_mode
            )
    for name, value in own.items():
        if name.endswith(tuple(LAYER_SCALE)) and _part(name) in _ENCODERS:
            state.setdefault(name, ones_like(value))
    changes += _drop_other_shapes(state, own)
    parts = Counter(map(_part, own)), Counter(map(_part, own.keys() & state))
    filled = ', '.join(f'{p} {parts[1][p]}/{parts[0][p]}' for p in parts[0])
    report = f'{source} (layout {about["layout"]}) fills {filled}'
    return report, [f'{source}: {change}' for change in changes]


def _drop_other_shapes(
    state: dict[str, Tensor], own: Mapping[str, Tensor]
) -> Iterator[str]:
    """Drop what is not an encoder and has other shapes than the model's."""
    for part in dict.fromkeys(map(_part, state)):
        names = [n for n in state if _part(n) == part]
        if part not in _ENCODERS and not all(
            n in own and own[n].shape == state[n].shape for n in names
        ):
            for name in names:
                del state[name]
            yield f'its {part} is of another size: the model keeps its own'


def _part(name: str) -> str:
    """An encoder, codebook, neck, or one of the parts of the head."""
    depth = 2 if name.startswith('head.') else 1
    return '.'.join(name.split('.')[:depth])
