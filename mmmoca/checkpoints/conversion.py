# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Backbones for other images, and files of converted weights."""

import os

from .grids import adapt_in_channels, resize_positions
from .layouts import Backbone
from .plain_vit import PROJECTION
from .reading import CheckpointError
from .writing import file_sha256, write_checkpoint

__all__ = [
    'adapt_backbone',
    'write_converted',
]


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
        img_size (Tuple[int, int], optional): Height and width in pixels that
            the position embedding is resized for.
        mode (str): Interpolation, 'bicubic' or 'bilinear'.
        source_grid (Tuple[int, int], optional): Patch rows and columns of the
            source; by default as it records, else square.
        in_channels (int, optional): See :func:`adapt_in_channels`.

    Returns:
        Backbone: With the new tensors and grid.

    Raises:
        CheckpointError: If the grid is not known or not that of the source,
            the size is not a multiple of the patch, or ``in_channels`` is
            below 1.
    """
    state = dict(backbone.state_dict)
    grid = backbone.grid
    if source_grid is not None:
        grid = tuple(source_grid)
        # Checks the number of patches.
        resize_positions(state['pos_embed'], grid, grid)
    if grid is None:
        raise CheckpointError(
            f'the source has {state["pos_embed"].shape[1] - 1} patches, no '
            'square, and records no grid: give --source-grid H W'
        )
    if img_size is not None:
        patch = state[PROJECTION].shape[2:]
        if any(s < p or s % p for s, p in zip(img_size, patch)):
            raise CheckpointError(
                f'--img-size {img_size[0]} {img_size[1]} must be multiples of '
                f'the patch, {patch[0]} x {patch[1]}'
            )
        source, grid = grid, tuple(s // p for s, p in zip(img_size, patch))
        state['pos_embed'] = resize_positions(
            state['pos_embed'], source, grid, mode
        )
    if in_channels is not None:
        if in_channels < 1:
            raise CheckpointError('--in-channels must be 1 or more')
        state[PROJECTION] = adapt_in_channels(state[PROJECTION], in_channels)
    return backbone._replace(state_dict=state, grid=grid)


def write_converted(
    checkpoint: dict, source: str | os.PathLike, target: str | os.PathLike
) -> None:
    """Write a converted checkpoint, with the checksum of its source.

    Args:
        checkpoint (dict): ``state_dict`` and ``meta``.
        source (str | os.PathLike): The file that it was made from.
        target (str | os.PathLike): See :func:`write_checkpoint`.
    """
    checkpoint['meta']['mmmoca']['sha256'] = file_sha256(source)
    write_checkpoint(checkpoint, target)
