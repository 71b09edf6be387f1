# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Fitting a ViT's weights to other image sizes and other channels."""

import math

from mmpretrain.models.utils import resize_pos_embed
from torch import Tensor

from .reading import CheckpointError
from .records import record_of

__all__ = ['adapt_in_channels', 'position_grid', 'resize_positions']


def position_grid(meta: object, pos_embed: Tensor) -> tuple[int, int] | None:
    """The patch grid of a position embedding.

    Args:
        meta (object): ``meta`` of the checkpoint, whatever it holds.
        pos_embed (Tensor): (1, 1 + L, D), [CLS] first.

    Returns:
        Tuple[int, int], optional: Rows and columns as recorded by a run or a
        tool of this package. Where nothing is recorded that fits, L is taken
        for a square, as every public checkpoint's is; None if it is none.
    """
    patches = pos_embed.shape[1] - 1
    grid = record_of(meta).get('grid')
    if grid is not None and grid[0] * grid[1] == patches:
        return tuple(grid)
    side = math.isqrt(patches)
    return (side, side) if side**2 == patches else None


def resize_positions(
    pos_embed: Tensor,
    source: tuple[int, int],
    target: tuple[int, int],
    mode: str = 'bicubic',
) -> Tensor:
    """Resize a position embedding between two patch grids.

    Args:
        pos_embed (Tensor): (1, 1 + h w, D), [CLS] first.
        source (Tuple[int, int]): Its rows and columns (h, w).
        target (Tuple[int, int]): Rows and columns (H, W) wanted.
        mode (str): Interpolation. Defaults to 'bicubic', without
            antialiasing, as mmpretrain does while it runs.

    Returns:
        Tensor: (1, 1 + H W, D).

    Raises:
        CheckpointError: If it has not h w patches.
    """
    if pos_embed.shape[1] != 1 + source[0] * source[1]:
        raise CheckpointError(
            f'the position embedding has {pos_embed.shape[1] - 1} patches, '
            f'which is not {source[0]} x {source[1]}: give the rows and '
            'columns it was trained on (--source-grid H W)'
        )
    return resize_pos_embed(pos_embed, source, target, mode)


def adapt_in_channels(projection: Tensor, channels: int) -> Tensor:
    """Adapt a patch projection to another number of input channels.

    To one channel: the sum over the old ones, so that a grey image gives
    what its three equal channels gave. To N: the old channels in turn until
    there are N, times C / N, so that activations keep their scale. This is
    the rule of timm's ``adapt_input_conv``.

    Args:
        projection (Tensor): Weight of the patch projection, (D, C, P, Q).
        channels (int): N, 1 or more.

    Returns:
        Tensor: (D, N, P, Q).
    """
    old = projection.shape[1]
    if channels == old:
        return projection
    if channels == 1:
        return projection.sum(dim=1, keepdim=True)
    repeated = projection.repeat(1, -(-channels // old), 1, 1)[:, :channels]
    return repeated * (old / channels)
