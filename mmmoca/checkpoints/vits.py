# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""ViTs of mmpretrain, built to fit the tensors of a checkpoint."""

from collections.abc import Mapping
from typing import Any

import torch
from mmpretrain.models.backbones import VisionTransformer

from .layouts import Backbone
from .plain_vit import PROJECTION, arch_of
from .reading import CheckpointError
from .records import record_of

__all__ = [
    'build_vit',
    'num_heads_of',
]


def build_vit(
    backbone: Backbone, num_heads: int | None = None, **settings: Any
) -> VisionTransformer:
    """Build the ViT that a checkpoint is of, with its weights.

    Args:
        backbone (Backbone): What :func:`read_backbone` returned.
        num_heads (int, optional): See :func:`num_heads_of`.
        **settings: Further arguments of :class:`VisionTransformer`, such as
            ``out_type``, by default 'raw': all tokens after the final norm.

    Returns:
        VisionTransformer: In float32 and evaluation mode, on the CPU.

    Raises:
        CheckpointError: If the number of heads or the patch grid is not
            known, there is no final norm, or its parts do not fit each
            other.
    """
    # What follows the mean patch token is a classifier's.
    state = {
        name: value.float()
        for name, value in backbone.state_dict.items()
        if not name.startswith('ln2.')
    }
    if 'ln1.weight' not in state:
        raise CheckpointError(
            'the encoder has no final norm, which [CLS] and [AVG] are taken '
            'after: give a pretrained encoder, not a classifier that was '
            'fine-tuned on the mean patch token'
        )
    if backbone.grid is None:
        raise CheckpointError(
            f'the encoder has {state["pos_embed"].shape[1] - 1} patches, no '
            'square, and records no grid: give --source-grid H W'
        )
    _, channels, *patch = state[PROJECTION].shape
    config = dict(
        arch=arch_of(state)
        | dict(num_heads=num_heads_of(backbone, num_heads)),
        patch_size=tuple(patch),
        in_channels=channels,
        qkv_bias='layers.0.attn.qkv.bias' in state,
        img_size=tuple(n * p for n, p in zip(backbone.grid, patch)),
        out_type='raw',
    )
    with torch.device('meta'):
        vit = VisionTransformer(**config | settings)
    try:
        vit.load_state_dict(state, assign=True)
    except RuntimeError as error:
        lines = str(error).splitlines()
        raise CheckpointError(
            'the parts of the encoder do not fit each other: '
            + ' '.join(line.strip() for line in lines[1:3])
        ) from error
    vit.eval()  # which mmpretrain's models do not return
    return vit


def num_heads_of(backbone: Backbone, num_heads: int | None = None) -> int:
    """The number of attention heads, which no tensor tells.

    Args:
        backbone (Backbone): What :func:`read_backbone` returned.
        num_heads (int, optional): In the place of what is recorded.

    Returns:
        int: As given, as the file records, or what all ViTs of these sizes
        have.

    Raises:
        CheckpointError: If it cannot be known, or does not divide the
            channels.
    """
    arch = arch_of(backbone.state_dict)
    heads = (
        num_heads
        or record_of(backbone.meta).get('num_heads')
        or _usual_num_heads(arch, backbone.layout)
    )
    dims = arch['embed_dims']
    if heads is None:
        raise CheckpointError(
            f'the file does not say how many attention heads its ViT of '
            f'{arch["num_layers"]} layers and {dims} channels has: give '
            '--num-heads N'
        )
    if not isinstance(heads, int) or heads < 1 or dims % heads:
        raise CheckpointError(
            f'{dims} channels cannot be split into {heads} heads: give '
            'another --num-heads N'
        )
    return heads


def _usual_num_heads(arch: Mapping[str, int], layout: str) -> int | None:
    if layout == 'mocov3' and arch['embed_dims'] == 384:
        return 12  # its ViT-S differs from all others
    known = {
        sizes['num_heads']
        for sizes in VisionTransformer.arch_zoo.values()
        if arch.items() <= sizes.items()
    }
    return known.pop() if len(known) == 1 else None
