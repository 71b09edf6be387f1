# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pretraining that starts from other weights.

``load_from='mmmoca-start://FILE'`` fills student and teacher, and from a file
of MOCA's also the rest of the model.
"""

import os
from collections import Counter

from torch import nn, ones_like

from .backbone import find_backbone
from .errors import CheckpointError
from .fit import check_fit
from .locate import tensors_of
from .names import PROJECTION
from .normal_form import LAYER_SCALE, adapt_in_channels
from .release import read_converted

START_SCHEME = 'mmmoca-start://'
_ENCODERS = ('backbone', 'teacher')


def load_start(model: nn.Module, file: str | os.PathLike) -> list[str]:
    """Fill a model of pretraining from a file of any known layout.

    From a file of MOCA's, the teacher fills the teacher and the student the
    student. From any other, one encoder fills both: the teacher, if there is
    one. Positions are resized and the patch projection is adapted to the
    model's channels. Codebook, decoder and prototype generators of other
    shapes are left as initialised.

    Args:
        model (nn.Module): A :class:`MOCA`.
        file (str | os.PathLike): The file.

    Returns:
        list[str]: For a log: how many of the names of each part of the model
        are filled, then what was changed.

    Raises:
        CheckpointError: If the model has no teacher or the file no ViT (see
            :func:`read_backbone`), or the
            architectures differ (see :func:`check_fit`).
    """
    own = model.state_dict()
    if 'teacher.cls_token' not in own:
        raise CheckpointError(
            f'{START_SCHEME} is for pretraining, and {type(model).__name__} '
            f"has no teacher: write load_from='mmmoca-teacher://{file}'"
        )
    file = os.fspath(file)
    checkpoint = read_converted(file, lazy=True)
    teacher = student = find_backbone(checkpoint, 'teacher', file)
    both = {f'{role}.cls_token' for role in _ENCODERS}
    groups = tensors_of(checkpoint).values()
    state = next((group for group in groups if group.keys() >= both), {})
    if state:
        student = find_backbone(checkpoint, 'student', file)
    other = {
        _part(name)
        for name, value in state.items()
        if name not in own or own[name].shape != value.shape
    }.difference(_ENCODERS)
    left_out = other.union(_ENCODERS)
    state = {k: v for k, v in state.items() if _part(k) not in left_out}
    own_size = 'is of another size: the model keeps its own'
    changes = list(teacher.changes)
    changes += [f'its {part} {own_size}' for part in sorted(other)]
    vit = model.backbone
    channels = vit.patch_embed.projection.in_channels
    old = teacher.state_dict[PROJECTION].shape[1]
    if old != channels:
        changes.append(f'its {old} channels become {channels}')
    grid, target = teacher.grid, tuple(vit.patch_resolution)
    rotary = 'rotary_periods' in teacher.state_dict  # for any grid
    if grid not in (None, target) and not rotary:
        changes.append(
            f'its positions are resized from {grid} to {target} patches'
        )
    for role, encoder in zip(_ENCODERS, (student, teacher)):
        encoder = encoder.resized(target, vit.interpolate_mode)
        tensors = dict(encoder.state_dict)
        tensors[PROJECTION] = adapt_in_channels(tensors[PROJECTION], channels)
        state |= {f'{role}.{name}': value for name, value in tensors.items()}
    for name, value in own.items():
        if name.endswith(tuple(LAYER_SCALE)) and _part(name) in _ENCODERS:
            state.setdefault(name, ones_like(value))
    heads = teacher.record.get('num_heads')
    fits = dict(mmmoca=dict(num_heads=heads, grid=grid and target))
    check_fit(model, state, fits, file)
    model.load_state_dict(state, strict=False)
    parts = Counter(map(_part, own)), Counter(map(_part, own.keys() & state))
    filled = ', '.join(f'{p} {parts[1][p]}/{parts[0][p]}' for p in parts[0])
    source = os.path.basename(file)
    report = f'{source} (layout {teacher.layout}) fills {filled}'
    return [report, *(f'{source}: {change}' for change in changes)]


def _part(name: str) -> str:
    """An encoder, codebook, neck, or one of the parts of the head."""
    depth = 2 if name.startswith('head.') else 1
    return '.'.join(name.split('.')[:depth])
