# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Finding the ViT in a checkpoint of any layout known."""

import os
import re
from typing import NamedTuple

from torch import Tensor

from .grids import position_grid
from .reading import CheckpointError, listed, read_checkpoint, tensors_of
from .timm_keys import convert_timm_name

__all__ = ['Backbone', 'find_backbone', 'read_backbone']

# A prefix holds a ViT if all of these follow it.
_ANCHORS = {
    'timm': (
        'patch_embed.proj.weight',
        'blocks.0.attn.qkv.weight',
        'blocks.0.mlp.fc1.weight',
    ),
    'mmpretrain': (
        'patch_embed.projection.weight',
        'layers.0.attn.qkv.weight',
        'layers.0.ffn.layers.0.0.weight',
    ),
}
_ENCODER = re.compile(
    r'cls_token|pos_embed|(patch_embed\.projection|ln[12]'
    r'|layers\.\d+\.(ln[12]|attn\.(qkv|proj)|ffn\.layers\.(0\.0|1)))'
    r'\.(weight|bias)'
)
# Heads and decoders that follow the encoder, in files that do not tell them
# apart by a prefix; anything else unknown changes what the encoder computes.
_OTHER = re.compile(
    r'(head|fc|decoder|mask_token|masked_embed|pre_logits|proj|pred)'
)


class Backbone(NamedTuple):
    """A ViT found in a checkpoint.

    Attributes:
        state_dict (Dict[str, Tensor]): Under the names of
            ``mmpretrain.VisionTransformer``, without a prefix.
        layout (str): 'mmmoca' (a pretraining run of this package), 'moca'
            (the authors'), 'mmpretrain', 'dino' (iBOT's, too), 'msn',
            'mocov3', 'mae' or 'timm' (DeiT's, too).
        which (str): 'teacher', 'student', or 'only' where the file has one
            encoder.
        ignored (List[str]): Names beside it that are left out, as a head's.
        grid (Tuple[int, int], optional): Rows and columns of its position
            embedding: as the file records, else square where their number
            allows it, else None.
    """

    state_dict: dict[str, Tensor]
    layout: str
    which: str
    ignored: list[str]
    grid: tuple[int, int] | None


class _Encoder(NamedTuple):
    """Where an encoder lies: key of the file, prefix there, and naming."""

    container: str
    prefix: str
    naming: str

    @property
    def place(self) -> str:
        return f'{self.container} {self.prefix}'.strip()


def read_backbone(path: str | os.PathLike, which: str = 'teacher') -> Backbone:
    """Read the ViT of a checkpoint file of any layout known.

    Args:
        path (str | os.PathLike): The file, see :func:`read_checkpoint`.
        which (str): 'teacher' (default, as all of the paper's evaluations)
            or 'student'. A file with one encoder has no student.

    Returns:
        Backbone: Its tensors, named as ``mmpretrain.VisionTransformer``'s.

    Raises:
        CheckpointError: If the file cannot be read, or see
            :func:`find_backbone`.
    """
    checkpoint = read_checkpoint(path, lazy=True)
    backbone = find_backbone(checkpoint, which, os.fspath(path))
    state_dict = {k: v.clone() for k, v in backbone.state_dict.items()}
    return backbone._replace(state_dict=state_dict)


def find_backbone(
    checkpoint: dict, which: str = 'teacher', source: str = 'the checkpoint'
) -> Backbone:
    """Find the ViT in what a checkpoint file holds.

    Args:
        checkpoint (dict): What :func:`read_checkpoint` returned.
        which (str): As in :func:`read_backbone`.
        source (str): What to call it in errors.

    Returns:
        Backbone: Its tensors, named as ``mmpretrain.VisionTransformer``'s.

    Raises:
        CheckpointError: If the file has no ViT, not the one asked for, or
            one without [CLS] or positions, or with parts that a plain ViT
            has not. A final norm is not required: some files have none, and
            :func:`~mmmoca.checkpoints.check_encoders` is for their users.
        ValueError: If ``which`` is neither of its choices.
    """
    if which not in ('teacher', 'student'):
        raise ValueError(
            f"which must be 'teacher' or 'student', but got {which!r}"
        )
    groups = tensors_of(checkpoint)
    encoder, role, all_found = _choose(groups, which, source)
    state_dict, ignored, unknown = {}, [], []
    for name, value in groups[encoder.container].items():
        if not name.startswith(encoder.prefix):
            continue
        name = name.removeprefix(encoder.prefix)
        new = convert_timm_name(name) if encoder.naming == 'timm' else name
        if _ENCODER.fullmatch(new):
            state_dict[new] = value
        elif _OTHER.match(new):
            ignored.append(name)
        else:
            unknown.append(name)
    _check_plain(state_dict, unknown, source)
    return Backbone(
        state_dict,
        _layout(encoder, all_found, ignored),
        role,
        ignored,
        position_grid(
            checkpoint.get('meta'),
            state_dict['pos_embed'],
            state_dict['patch_embed.projection.weight'],
        ),
    )


def _check_plain(
    state_dict: dict[str, Tensor], unknown: list[str], source: str
) -> None:
    """Refuse an encoder that the models here would not compute alike."""
    if unknown:
        raise CheckpointError(
            f'the encoder in {source} has {listed(unknown)}, which a plain '
            'ViT has not. Encoders with LayerScale, registers, a distillation '
            'token or relative positions are not read: a config without these '
            'parts would load the rest and compute something else'
        )
    missing = [n for n in ('cls_token', 'pos_embed') if n not in state_dict]
    if missing:
        raise CheckpointError(
            f'the encoder in {source} has no {" and no ".join(missing)}: only '
            'ViTs with a [CLS] token and absolute positions are read (those '
            'of I-JEPA, for one, have no [CLS])'
        )


def _choose(
    groups: dict[str, dict[str, Tensor]], which: str, source: str
) -> tuple[_Encoder, str, list[_Encoder]]:
    """The encoder asked for, its role, and all that the file has."""
    found = [
        _Encoder(container, name.removesuffix(first), naming)
        for container, tensors in groups.items()
        for naming, (first, *others) in _ANCHORS.items()
        for name in tensors
        if name.endswith(first)
        and all(name.removesuffix(first) + o in tensors for o in others)
    ]
    if not found:
        names = [name for tensors in groups.values() for name in tensors]
        raise CheckpointError(
            f'{source} has no ViT of a layout known '
            '(patch_embed.proj and blocks.0.attn.qkv as in timm, or '
            'patch_embed.projection and layers.0.attn.qkv as in mmpretrain); '
            + (f'it has {listed(names)}' if names else 'it has no tensors')
        )
    teachers = [
        e for e in found if re.search('teacher|target|momentum', e.place)
    ]
    students = [e for e in found if e not in teachers]
    if not teachers and students[0].container != 'student':
        if len(found) > 1:
            raise CheckpointError(
                f'{source} has several encoders, and none is called teacher: '
                f'{listed(e.place for e in found)}. Save the one you mean as '
                'a file of its own'
            )
        if which == 'student':
            raise CheckpointError(
                f'{source} has one encoder only, so there is no student to '
                'choose: leave out which (--which)'
            )
        return found[0], 'only', found
    chosen = teachers if which == 'teacher' else students
    if len(chosen) != 1:
        raise CheckpointError(
            f'{source} has {len(chosen)} encoders that could be the {which}: '
            f'it has {listed(e.place for e in found)}. Choose the other one '
            'by which (--which), or save the one you mean as a file of its '
            'own'
        )
    return chosen[0], which, found


def _layout(
    encoder: _Encoder, all_found: list[_Encoder], ignored: list[str]
) -> str:
    prefixes = {e.prefix for e in all_found}
    containers = {e.container for e in all_found}
    if 'encoder_teacher.' in prefixes:
        return 'moca'
    if encoder.naming == 'mmpretrain':
        return 'mmmoca' if 'teacher.' in prefixes else 'mmpretrain'
    if 'target_encoder' in containers:
        return 'msn'
    if 'momentum_encoder.' in prefixes:
        return 'mocov3'
    if containers & {'teacher', 'student'}:
        return 'dino'
    if any(name.startswith(('decoder', 'mask_token')) for name in ignored):
        return 'mae'
    return 'timm'
