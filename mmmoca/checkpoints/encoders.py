# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Where the encoders of a checkpoint are, and which of them is meant."""

import re
from typing import NamedTuple

from torch import Tensor

from .reading import CheckpointError, listed

__all__ = ['Encoder', 'choose_encoder', 'layout_of']

# A prefix holds a ViT, named in this way, if both of these follow it.
_ANCHORS = (
    ('timm', 'patch_embed.proj.weight', 'blocks.0.attn.qkv.weight'),
    ('timm', 'patch_embed.proj.weight', 'blocks.0.0.attn.qkv.weight'),
    (
        'mmpretrain',
        'patch_embed.projection.weight',
        'layers.0.attn.qkv.weight',
    ),
    *(
        (
            'huggingface',
            'embeddings.patch_embeddings.projection.weight',
            f'{query}.weight',
        )
        for query in (
            'encoder.layer.0.attention.attention.query',
            'encoder.layer.0.attention.q_proj',
            'layers.0.attention.q_proj',
        )
    ),
)


class Encoder(NamedTuple):
    """Where an encoder lies.

    Attributes:
        container (str): Key of the file.
        prefix (str): Of its names there.
        naming (str): 'timm', 'mmpretrain' or 'huggingface'.
    """

    container: str
    prefix: str
    naming: str

    @property
    def place(self) -> str:
        """str: What to call it."""
        return f'{self.container} {self.prefix}'.strip()


def choose_encoder(
    groups: dict[str, dict[str, Tensor]], which: str, source: str
) -> tuple[Encoder, str, list[Encoder]]:
    """Choose an encoder of a file.

    Args:
        groups (Dict[str, Dict[str, Tensor]]): See :func:`tensors_of`.
        which (str): 'teacher' or 'student'.
        source (str): What to call the file in errors.

    Returns:
        Tuple[Encoder, str, List[Encoder]]: The encoder asked for, its role
        (``which``, or 'only' if there is one), and all that the file has.

    Raises:
        CheckpointError: If there is none, or not one alone that is meant.
    """
    found = [
        Encoder(container, name.removesuffix(first), naming)
        for container, tensors in groups.items()
        for naming, first, second in _ANCHORS
        for name in tensors
        if name.endswith(first)
        and name.removesuffix(first) + second in tensors
    ]
    if not found:
        names = [name for tensors in groups.values() for name in tensors]
        raise CheckpointError(
            f'{source} has no ViT of a layout known '
            '(patch_embed.proj and blocks.0.attn.qkv as in timm, '
            'patch_embed.projection and layers.0.attn.qkv as in mmpretrain, '
            'or those of ViTModel and Dinov2Model as in transformers); '
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


def layout_of(
    encoder: Encoder,
    all_found: list[Encoder],
    ignored: list[str],
    scaled: bool,
) -> str:
    """The layout of a file, see :class:`Backbone`.

    Args:
        encoder (Encoder): The one that was chosen.
        all_found (List[Encoder]): All that the file has.
        ignored (List[str]): Names beside the encoder's.
        scaled (bool): Whether it has LayerScale or registers.

    Returns:
        str: The layout's name.
    """
    prefixes = {e.prefix for e in all_found}
    containers = {e.container for e in all_found}
    if 'encoder_teacher.' in prefixes:
        return 'moca'
    if encoder.naming == 'huggingface':
        return 'huggingface'
    if encoder.naming == 'mmpretrain':
        return 'mmmoca' if 'teacher.' in prefixes else 'mmpretrain'
    if 'target_encoder' in containers:
        return 'msn'
    if 'momentum_encoder.' in prefixes:
        return 'mocov3'
    if containers & {'teacher', 'student'}:
        return 'dino'
    if any(name.startswith(('decoder', 'mask_token')) for name in ignored):
        return 'dinov2' if scaled else 'mae'
    return 'timm'
