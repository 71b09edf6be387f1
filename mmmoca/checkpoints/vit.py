# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Builds ViTs that fit the tensors of a checkpoint."""

import math

import torch
from mmpretrain.models.backbones import VisionTransformer

from mmmoca.registry import MODELS

from .backbone import Backbone
from .errors import CheckpointError
from .names import PROJECTION
from .normal_form import (
    TOKEN_PARTS,
    adapt_in_channels,
    arch_of,
    token_parts,
)


def adapt_backbone(
    backbone: Backbone,
    img_size: tuple[int, int] | None = None,
    mode: str = 'bicubic',
    source_grid: tuple[int, int] | None = None,
    in_channels: int | None = None,
) -> Backbone:
    """Adapt a backbone to images of another size or number of channels.

    Args:
        backbone (Backbone): What :func:`read_backbone` returned.
        img_size (tuple[int, int], optional): Height and width in pixels that
            the position embedding is resized for.
        mode (str): Interpolation, 'bicubic' or 'bilinear'.
        source_grid (tuple[int, int], optional): Patch rows and columns that
            the position embedding is for. Defaults to ``backbone.grid``.
        in_channels (int, optional): Number of input channels, 1 or more, see
            :func:`adapt_in_channels`.

    Returns:
        Backbone: The backbone with the new tensors and grid.

    Raises:
        CheckpointError: If the patch grid is unknown, if ``source_grid`` does
            not fit the position embedding, or if ``img_size`` is not a
            multiple of the patch size.
    """
    if source_grid is not None:
        rotary = 'pos_embed' not in backbone.state_dict
        patches = rotary or backbone.state_dict['pos_embed'].shape[1] - 1
        if not rotary and math.prod(source_grid) != patches:
            raise CheckpointError(
                f'the position embedding has {patches} patches, not '
                f'{source_grid[0]} x {source_grid[1]}: correct --source-grid'
            )
        backbone = backbone._replace(grid=tuple(source_grid))
    size = backbone.img_size  # an error if the grid is unknown
    size = size if img_size is None else img_size
    projection = backbone.state_dict[PROJECTION]
    patch = projection.shape[2:]
    if len(size) != 2 or any(s < p or s % p for s, p in zip(size, patch)):
        raise CheckpointError(
            f'img_size={size} (--img-size) must be two multiples of the '
            f'patch size, {patch[0]} x {patch[1]}'
        )
    grid = tuple(int(s // p) for s, p in zip(size, patch))
    backbone = backbone.resized(grid, mode)
    channels = in_channels or projection.shape[1]
    projection = adapt_in_channels(projection, channels)
    backbone.state_dict[PROJECTION] = projection
    return backbone


def build_vit(
    backbone: Backbone, num_heads: int | None = None
) -> VisionTransformer:
    """Build the ViT of a checkpoint, with its weights.

    Args:
        backbone (Backbone): What :func:`read_backbone` returned.
        num_heads (int, optional): See :func:`num_heads_of`.

    Returns:
        VisionTransformer: The ViT, in float32 and evaluation mode, on the
        CPU. It returns all tokens after the final norm (``out_type='raw'``).

    Raises:
        CheckpointError: If the number of heads or the patch grid is unknown,
            if there is no final norm, or if the tensors do not fit each
            other.
    """
    # ln2, a norm after the mean patch token, belongs to a classifier.
    state = {
        name: value.float()
        for name, value in backbone.state_dict.items()
        if not name.startswith('ln2.')
    }
    if 'ln1.weight' not in state:
        raise CheckpointError(
            'the encoder has no final norm, after which features are taken: '
            'use a pretrained encoder, not a fine-tuned classifier or '
            'detector'
        )
    _, channels, *patch = state[PROJECTION].shape
    config = dict(
        arch=arch_of(state)
        | dict(num_heads=num_heads_of(backbone, num_heads)),
        patch_size=tuple(patch),
        in_channels=channels,
        qkv_bias='layers.0.attn.qkv.bias' in state,
        img_size=backbone.img_size,
        out_type='raw',
    )
    if eps := backbone.record.get('norm_eps'):
        config['norm_cfg'] = dict(type='LN', eps=eps)
    kind = VisionTransformer
    if state.keys() & TOKEN_PARTS:
        # The class is looked up by name, because mmmoca.checkpoints must not
        # import mmmoca.models.
        kind = MODELS.get('mmmoca.MOCAViT')
        registers, positions = token_parts(state)
        config |= dict(num_registers=registers, positions=positions)
    with torch.device('meta'):
        vit = kind(**config)
    try:
        vit.load_state_dict(state, assign=True)
    except RuntimeError as error:
        lines = ' '.join(str(error).split())
        raise CheckpointError(
            f'the parts of the encoder do not fit each other: {lines}'
        ) from error
    vit.eval()  # returns None in mmpretrain's models
    return vit


def num_heads_of(backbone: Backbone, num_heads: int | None = None) -> int:
    """Return the number of attention heads, which no tensor shows.

    Args:
        backbone (Backbone): What :func:`read_backbone` returned.
        num_heads (int, optional): Number to use instead of the recorded one.

    Returns:
        int: The given number, or else the recorded one. If there is neither,
        the number that the rotary positions imply, or that all known ViTs of
        the same width, depth and MLP width have.

    Raises:
        CheckpointError: If the number is unknown, does not divide the
            channels, or does not fit the rotary positions.
    """
    arch = arch_of(backbone.state_dict)
    dims = arch['embed_dims']
    usual = {
        sizes['num_heads']
        for name, sizes in VisionTransformer.arch_zoo.items()
        # Building mmpretrain's MoCoV3ViT adds its sizes to this table.
        if arch.items() <= sizes.items() and not name.startswith('mocov3')
    }
    if (backbone.layout, dims) == ('mocov3', 384):
        usual = {12}  # where other ViTs of 384 channels have 6
    periods = backbone.state_dict.get('rotary_periods')
    if periods is not None:  # each is for 4 channels of a head
        usual = {dims // (4 * len(periods))}
    heads = num_heads or backbone.record.get('num_heads')
    if periods is not None and heads not in (None, *usual):
        raise CheckpointError(
            f'{heads} attention heads do not fit the rotary positions, which '
            f'are for {usual.pop()}: if transformers or timm wrote the file, '
            "put the encoder's config.json into the same folder"
        )
    heads = heads or (usual.pop() if len(usual) == 1 else None)
    if type(heads) is not int or heads < 1 or dims % heads:  # refuses True
        raise CheckpointError(
            f'the number of attention heads of a ViT of {dims} channels is '
            f'{heads or "not recorded"}: give a number that divides the '
            'channels, with num_heads=N (--num-heads N)'
        )
    return heads
