# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What others' ViTs have, in the parts of a plain one that computes the same.

State dicts have mmpretrain's names here.
"""

import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor

from .reading import CheckpointError

__all__ = [
    'LAYER_SCALE',
    'PROJECTION',
    'arch_of',
    'fold_layer_scale',
    'join_qkv',
    'prepend_class_position',
    'split_qkv',
]

# Maps patches to tokens: (D, C, height, width).
PROJECTION = 'patch_embed.projection.weight'
# What LayerScale multiplies a branch by, and what the branch ends in.
LAYER_SCALE = {
    'attn.gamma1.weight': 'attn.proj',
    'ffn.gamma2.weight': 'ffn.layers.1',
}


def arch_of(state_dict: Mapping[str, Tensor]) -> dict[str, int]:
    """The sizes of a ViT, as mmpretrain's ``arch`` calls them.

    Args:
        state_dict (Mapping[str, Tensor]): Of a ViT.

    Returns:
        Dict[str, int]: ``embed_dims``, ``num_layers`` and
        ``feedforward_channels``. Tensors do not tell the number of heads.
    """
    layers = [n.split('.')[1] for n in state_dict if n.startswith('layers.')]
    return dict(
        embed_dims=len(state_dict[PROJECTION]),
        num_layers=1 + max(map(int, layers)),
        feedforward_channels=len(state_dict['layers.0.ffn.layers.0.0.weight']),
    )


def join_qkv(state_dict: dict[str, Tensor], source: str) -> None:
    """Join queries, keys and values that a file keeps apart, in place.

    Args:
        state_dict (Dict[str, Tensor]): Of a ViT.
        source (str): What to call it in errors.

    Raises:
        CheckpointError: If one of the three is missing.
    """
    for name in list(state_dict):
        apart = re.fullmatch(r'(.+\.attn\.)[qkv](\.weight|\.bias)', name)
        if apart is None or name not in state_dict:
            continue
        stem, kind = apart.groups()
        parts = [state_dict.pop(f'{stem}{p}{kind}', None) for p in 'qkv']
        if any(part is None for part in parts):
            raise CheckpointError(
                f'the encoder in {source} has not all three of {stem}q{kind}, '
                f'{stem}k{kind} and {stem}v{kind}, as a plain ViT has'
            )
        state_dict[f'{stem}qkv{kind}'] = torch.cat(parts)


def split_qkv(state_dict: dict[str, Tensor]) -> None:
    """Take queries, keys and values apart, in place; see :func:`join_qkv`.

    Args:
        state_dict (Dict[str, Tensor]): Of a ViT.
    """
    for name in list(state_dict):
        joint = re.fullmatch(r'(.+\.attn\.)qkv(\.weight|\.bias)', name)
        if joint is not None:
            stem, kind = joint.groups()
            parts = state_dict.pop(name).chunk(3)
            for part, value in zip('qkv', parts):
                state_dict[f'{stem}{part}{kind}'] = value


def fold_layer_scale(state_dict: dict[str, Tensor]) -> bool:
    """Multiply the factors of LayerScale into what they scale, in place.

    A branch ends in a linear layer, whose output the factors multiply: its
    rows and its bias take them over. The function is the same, the way in
    which it is trained is not.

    Args:
        state_dict (Dict[str, Tensor]): Of a ViT.

    Returns:
        bool: Whether it had any.
    """
    found = False
    for name in list(state_dict):
        layer, _, part = name.partition('.')[2].partition('.')
        if part not in LAYER_SCALE:
            continue
        found = True
        factors = state_dict.pop(name).float()
        linear = f'layers.{layer}.{LAYER_SCALE[part]}'
        for kind, by in (('weight', factors[:, None]), ('bias', factors)):
            if f'{linear}.{kind}' in state_dict:
                state_dict[f'{linear}.{kind}'] = (
                    state_dict[f'{linear}.{kind}'].float() * by
                )
    return found


def prepend_class_position(state_dict: dict[str, Tensor]) -> None:
    """Give [CLS] a position of zeros where it has none, in place.

    So timm has DeiT III and the DINOv2 with registers, whose [CLS] has its
    position added to it.

    Args:
        state_dict (Dict[str, Tensor]): Of a ViT on a square grid.
    """
    positions = state_dict['pos_embed']
    if math.isqrt(positions.shape[1]) ** 2 == positions.shape[1]:
        zeros = torch.zeros_like(positions[:, :1])
        state_dict['pos_embed'] = torch.cat((zeros, positions), dim=1)
