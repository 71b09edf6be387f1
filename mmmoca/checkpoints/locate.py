# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Finds the tensors of an encoder in a checkpoint."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from mmmoca.messages import listed

from .errors import CheckpointError
from .names import PROJECTION

# Names of weights that identify a ViT, and the libraries that use these names.
_ANCHORS = {
    'patch_embed.proj.weight': 'timm',
    PROJECTION: 'mmpretrain',
    'embeddings.patch_embeddings.projection.weight': 'huggingface',
    'embeddings.patch_embeddings.weight': 'huggingface',  # DINOv3
}
# Keys under which known layouts keep their tensors, most specific first. '' is
# for files that hold nothing but tensors.
_CONTAINERS = (
    'teacher',
    'student',
    'target_encoder',
    'encoder',
    'state_dict',
    'model_state_dict',
    'model',
    '',
)
# Prefixes that wrappers add to names: data parallelism, torch.compile, FSDP,
# activation checkpointing and DeepSpeed.
_WRAPPERS = re.compile(
    r'(?<![^.])(module|_orig_mod|_fsdp_wrapped_module'
    r'|_checkpoint_wrapped_module|_forward_module)\.'
)
# Keys and prefixes of averaged weights, such as timm's state_dict_ema.
_AVERAGED = re.compile(r'(?<![a-z])(ema|swa|averaged?)(?![a-z])', re.I)
# Keys and prefixes of a teacher. Some also match _AVERAGED (ema_teacher).
_TEACHER = re.compile('teacher|target|momentum')
ROLES = ('teacher', 'student')


class Place(NamedTuple):
    """Where an encoder is in a file.

    Attributes:
        container (str): Key under which the file has the encoder's tensors.
        prefix (str): Prefix of the tensors' names under this key.
        naming (str): The library that named the tensors: 'timm', 'mmpretrain'
            or 'huggingface'.
    """

    container: str
    prefix: str
    naming: str

    def __str__(self) -> str:
        return f'{self.container} {self.prefix}'.strip() or 'one'


class Location(NamedTuple):
    """An encoder that was found in a file.

    Attributes:
        tensors (dict[str, Tensor]): Its tensors, and those of heads and
            decoders with the same prefix. The names are those of the file,
            without this prefix.
        naming (str): See :class:`Place`.
        role (str): 'teacher', 'student' or 'only', see
            :attr:`Backbone.which`.
        places (list[Place]): Places of all encoders in the file whose weights
            are of the chosen kind, raw or averaged.
        choice (str, optional): A sentence that says which kind was chosen,
            if the file has averaged weights.
    """

    tensors: dict[str, Tensor]
    naming: str
    role: str
    places: list[Place]
    choice: str | None


def locate(
    checkpoint: dict,
    which: str,
    weights: str | None,
    recorded: object,
    source: str,
) -> Location:
    """Find an encoder in the content of a checkpoint file.

    Args:
        checkpoint (dict): What :func:`read_checkpoint` returned.
        which (str): 'teacher' or 'student'.
        weights (str, optional): 'raw' or 'averaged'. None for those under the
            file's usual key, which other programs load.
        recorded (object): The role that the file records for its only
            encoder, if any.
        source (str): Name of the file in errors.

    Returns:
        Location: The encoder.

    Raises:
        CheckpointError: If the file has no ViT of a known layout, or not the
            one asked for.
        ValueError: If ``which`` is neither 'teacher' nor 'student'.
    """
    groups = tensors_of(checkpoint)
    found = [
        Place(container, name.removesuffix(anchor), naming)
        for container, tensors in groups.items()
        for anchor, naming in _ANCHORS.items()
        for name in tensors
        if name.endswith(anchor)
    ]
    if not found:
        names = [name for tensors in groups.values() for name in tensors]
        names = names or [*map(str, checkpoint)] or ['nothing']
        raise CheckpointError(
            f'{source} has no ViT of a known layout (patch_embed.proj as in '
            'timm, patch_embed.projection as in mmpretrain, or embeddings.'
            f'patch_embeddings as in transformers): it has {listed(names)}'
        )
    swapped = 'message_hub' in checkpoint and 'ema_state_dict' in checkpoint
    found, choice = choose_weights(found, weights, swapped, source)
    place, role = choose_encoder(found, which, recorded, source)
    tensors = {
        name.removeprefix(place.prefix): value
        for name, value in groups[place.container].items()
        if name.startswith(place.prefix)
    }
    return Location(tensors, place.naming, role, found, choice)


def tensors_of(checkpoint: dict) -> dict[str, dict[str, Tensor]]:
    """Return the state dicts in a checkpoint.

    Args:
        checkpoint (dict): What :func:`read_checkpoint` returned.

    Returns:
        dict[str, dict[str, Tensor]]: The state dicts by their keys in the
        file, '' for the file itself. Only the keys of known layouts and of
        averaged weights are searched. Prefixes that wrappers add to names are
        removed.
    """
    averaged = [key for key in checkpoint if _AVERAGED.search(str(key))]
    found = {}
    for key in dict.fromkeys((*_CONTAINERS, *averaged)):
        values = checkpoint if key == '' else checkpoint.get(key)
        if isinstance(values, dict):
            found[key] = {
                _WRAPPERS.sub('', name): value
                for name, value in values.items()
                if isinstance(name, str) and isinstance(value, Tensor)
            }
    return {key: tensors for key, tensors in found.items() if tensors}


def choose_weights(
    found: list[Place], weights: str | None, swapped: bool, source: str
) -> tuple[list[Place], str | None]:
    """Choose between the raw and the averaged weights of a file.

    Args:
        found (list[Place]): The encoders in the file.
        weights (str, optional): 'raw' or 'averaged'. None for those under the
            file's usual key, which other programs load.
        swapped (bool): Whether the file keeps the averaged weights under the
            usual key and the raw ones as ``ema_state_dict``, as MMEngine's
            EMAHook does.
        source (str): Name of the file in errors.

    Returns:
        tuple[list[Place], str | None]: Places of the chosen weights; and, if
        the file has averaged weights, a sentence that says which were chosen.

    Raises:
        CheckpointError: If the file does not have the weights asked for.
    """
    beside = [
        place
        for place in found
        if any(
            _AVERAGED.search(word) and not _TEACHER.search(word)
            for word in re.split('[ .]', str(place))
        )
    ]
    main = [place for place in found if place not in beside]
    kinds = ('averaged', 'raw') if swapped else ('raw', 'averaged')
    sets = {k: places for k, places in zip(kinds, (main, beside)) if places}
    taken = weights or next(iter(sets))
    if taken not in sets:
        raise CheckpointError(
            f'{source} has no {taken} weights, only {listed(sets)} ones'
        )
    if not beside:
        return sets[taken], None
    places = ', '.join(f'{kind} in {listed(sets[kind])}' for kind in sets)
    line = (
        f'its {taken} weights are used; `convert.py --weights`, or '
        f'weights= in Python, chooses the kind ({places})'
    )
    return sets[taken], line


def choose_encoder(
    found: list[Place], which: str, recorded: object, source: str
) -> tuple[Place, str]:
    """Choose between the teacher and the student of a file.

    Args:
        found (list[Place]): The encoders in the file.
        which (str): 'teacher' or 'student'.
        recorded (object): The role that the file records for its only
            encoder, if any.
        source (str): Name of the file in errors.

    Returns:
        tuple[Place, str]: The place of the encoder; and its role, 'teacher',
        'student' or 'only', see :attr:`Backbone.which`.

    Raises:
        CheckpointError: If no encoder, or more than one, fits ``which``.
        ValueError: If ``which`` is neither 'teacher' nor 'student'.
    """
    if which not in ROLES:
        raise ValueError(
            f"which must be 'teacher' or 'student', but got {which!r}"
        )
    teachers = [place for place in found if _TEACHER.search(str(place))]
    students = [place for place in found if place not in teachers]
    named = [place for place in students if 'student' in str(place)]
    # In files of the package lightly, only the student's names show its role.
    if named and not teachers:
        teachers = [place for place in students if place not in named]
        students = named
    # DINOv3's Gram teacher is a copy of an earlier teacher.
    teachers = [p for p in teachers if 'gram_teacher' not in str(p)]
    chosen, role = teachers if which == 'teacher' else students, which
    if len(found) == 1 and not teachers and not named:
        chosen = found if which in ('teacher', recorded) else []
        role = recorded if recorded in ROLES else 'only'
    if len(chosen) != 1:
        raise CheckpointError(
            f'{source} has {len(chosen)} encoders that could be the {which}, '
            f'among {listed(found)}: choose with --which, or save only one'
        )
    return chosen[0], role


def layout_of(location: Location, ignored: Sequence[str], scaled: bool) -> str:
    """Infer the layout of a file that does not record it.

    Args:
        location (Location): The chosen encoder.
        ignored (Sequence[str]): Names of tensors that do not belong to the
            encoder.
        scaled (bool): Whether the encoder in the file had LayerScale or rotary
            positions, as in DINOv2 and DINOv3.

    Returns:
        str: See :class:`Backbone`.
    """
    naming = location.naming
    containers = {place.container for place in location.places}
    prefixes = {place.prefix for place in location.places}
    momentum = any(p.startswith('momentum_encoder.') for p in prefixes)
    decoder = any(n.startswith(('decoder', 'mask_token')) for n in ignored)
    for layout, fits in (
        ('moca', 'encoder_teacher.' in prefixes),
        ('huggingface', naming == 'huggingface'),
        ('mmmoca', naming == 'mmpretrain' and 'teacher.' in prefixes),
        ('mocov3', momentum),  # mmpretrain's MoCo v3 too
        ('mmpretrain', naming == 'mmpretrain'),
        ('msn', 'target_encoder' in containers),
        ('dino', bool(containers & {'teacher', 'student'})),
        ('dinov2', decoder and scaled),
        ('mae', decoder),
    ):
        if fits:
            return layout
    return 'timm'
