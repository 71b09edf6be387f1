# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pretraining that starts from other weights.

``load_from='mmmoca-start://FILE'`` fills student and teacher, and of a file
of MOCA's the rest, too.
"""

import os
from collections.abc import Iterator, Mapping

from mmpretrain.models.backbones import VisionTransformer
from torch import Tensor, nn, ones_like

from .fitting import after_prefix, other_shapes, shape_advice
from .grids import adapt_in_channels, resize_positions
from .layouts import find_backbone
from .plain_vit import LAYER_SCALE, PROJECTION
from .reading import CheckpointError, listed, read_checkpoint, tensors_of
from .records import file_record, record_of
from .release_model import convert_release_tensors

__all__ = ['START', 'fit_start', 'is_start', 'read_start']

START = 'mmmoca-start://'
_ENCODERS = ('backbone', 'teacher')


def read_start(path: str | os.PathLike) -> dict:
    """Read what pretraining can start from.

    Args:
        path (str | os.PathLike): A file of any layout known. The teacher of
            MOCA's files goes to the teacher and the student to the student;
            of all others one encoder goes to both, the teacher if there are
            two.

    Returns:
        dict: ``state_dict`` with names of :class:`MOCA`, and ``meta``.

    Raises:
        CheckpointError: See :func:`read_backbone`. Registers are no error
            here.
    """
    path = os.fspath(path)
    checkpoint = read_checkpoint(path, lazy=True)
    teacher = student = find_backbone(
        checkpoint, 'teacher', path, drop_registers=True
    )
    state = {}
    if teacher.layout in ('mmmoca', 'moca'):
        student = find_backbone(checkpoint, 'student', path)
        state = (
            convert_release_tensors(checkpoint, path)[0]
            if teacher.layout == 'moca'
            else tensors_of(checkpoint)['state_dict']
        )
    state = {
        name: value
        for name, value in state.items()
        if not name.startswith(('backbone.', 'teacher.'))
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
    left as initialised.

    Args:
        checkpoint (dict): What :func:`read_start` returned.
        model (nn.Module): A :class:`MOCA`.
        own (Mapping[str, Tensor]): Its state dict.

    Returns:
        Tuple[str, List[str]]: How many of the names of each part of the
        model are filled; and what was changed, in words for a log.

    Raises:
        CheckpointError: If the model has no teacher, or an encoder has
            another architecture than the model's. Says which keys to write.
    """
    state, about = checkpoint['state_dict'], checkpoint['meta']['mmmoca']
    source = about['source']
    if 'teacher.cls_token' not in own:
        raise CheckpointError(
            f'{START} is for pretraining, and {type(model).__name__} has no '
            f"teacher: write load_from='mmmoca-teacher://{source}'"
        )
    changes = list(about['changes'])
    for role in _ENCODERS:
        said = _fit_encoder(state, f'{role}.', model.backbone, own, about)
        changes += [change for change in said if change not in changes]
    if about['grid'] is not None:
        about['grid'] = tuple(model.backbone.patch_resolution)
    changes += _leave_misfits(state, own)
    counts = [
        f'{name} {len(part & state.keys())}/{len(part)}'
        for name, part in _parts(own)
    ]
    report = f'{source} (layout {about["layout"]}) fills {", ".join(counts)}'
    return report, [f'{source}: {change}' for change in changes]


def _fit_encoder(
    state: dict[str, Tensor],
    prefix: str,
    vit: VisionTransformer,
    own: Mapping[str, Tensor],
    about: dict,
) -> list[str]:
    """Fit one encoder; what was changed."""
    changes = []
    ours, theirs = after_prefix(own, prefix), after_prefix(state, prefix)
    for name in ours:
        if name.endswith(tuple(LAYER_SCALE)) and name not in theirs:
            theirs[name] = ones_like(ours[name])
    channels = [part[PROJECTION].shape[1] for part in (theirs, ours)]
    if channels[0] != channels[1]:
        theirs[PROJECTION] = adapt_in_channels(theirs[PROJECTION], channels[1])
        changes.append(
            f'its {channels[0]} channels become {channels[1]}, in turn and '
            'scaled'
        )
    _check_architecture(theirs, ours, about['source'])
    source, target = about['grid'], tuple(vit.patch_resolution)
    if source is not None and source != target:
        theirs['pos_embed'] = resize_positions(
            theirs['pos_embed'], source, target, vit.interpolate_mode
        )
        changes.append(
            f'its positions are resized from {source} to {target} patches'
        )
    state.update({prefix + name: value for name, value in theirs.items()})
    return changes


def _check_architecture(
    theirs: Mapping[str, Tensor], ours: Mapping[str, Tensor], source: str
) -> None:
    if misshapen := other_shapes(theirs, ours):
        raise CheckpointError(
            f'{source}: {shape_advice(theirs, ours, misshapen[0])}'
        )
    if differing := theirs.keys() ^ ours.keys():
        raise CheckpointError(
            f'the ViT of {source} does not fit: only one of file and model '
            f'has {listed(sorted(differing))}. Build the model as the file'
        )


def _leave_misfits(
    state: dict[str, Tensor], own: Mapping[str, Tensor]
) -> list[str]:
    """Take parts out that the model has in other shapes, or has not."""
    changes = []
    for part in dict.fromkeys(_part(name) for name in state):
        names = [n for n in state if _part(n) == part]
        if all(n in own and own[n].shape == state[n].shape for n in names):
            continue
        for name in names:
            del state[name]
        changes.append(
            f'its {part} is of another size: the model keeps its own'
        )
    return changes


def _part(name: str) -> str:
    """Codebook, neck, or one of the parts of the head."""
    first, second = name.split('.')[:2]
    return f'{first}.{second}' if first == 'head' else first


def _parts(own: Mapping[str, Tensor]) -> Iterator[tuple[str, set[str]]]:
    for part in dict.fromkeys(name.split('.')[0] for name in own):
        yield part, {n for n in own if n.startswith(f'{part}.')}
