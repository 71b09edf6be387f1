# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Rotary positions of DINOv3 (Simeoni et al., 2025), for any (H, W) grid."""

import math

import torch
from torch import Tensor

from .precision import no_autocast


def rotary_periods(head_dims: int, base: float = 100.0) -> Tensor:
    """Return the periods of the angles, in units of half an image.

    Args:
        head_dims (int): d, channels of a head, a multiple of 4.
        base (float): Upper bound of the periods. They form a geometric series
            that starts at 1. Defaults to 100.

    Returns:
        Tensor: (d / 4,), float32.
    """
    count = head_dims // 4
    return base ** (torch.arange(count, dtype=torch.float32) / count)


def rotary_angles(grid: tuple[int, int], periods: Tensor) -> Tensor:
    """Return the angle of each channel of a head at each patch.

    The first quarter of the channels encodes the row of a patch's centre, the
    second quarter its column. Both run from -1 to 1 over the image. The second
    half of the channels repeats the first.

    Args:
        grid (tuple[int, int]): Rows and columns of patches, (H, W).
        periods (Tensor): See :func:`rotary_periods`, (d / 4,).

    Returns:
        Tensor: (H * W, d), float32, in row-major order.
    """
    dtype, device = torch.float32, periods.device
    rows, columns = (
        (torch.arange(n, dtype=dtype, device=device) + 0.5) / n * 2 - 1
        for n in grid
    )
    centres = torch.cartesian_prod(rows, columns)  # (H * W, 2)
    angles = 2 * math.pi * centres[:, :, None] / periods.float()
    return angles.flatten(1).repeat(1, 2)  # (H * W, 2, d / 4) -> (H * W, d)


def rotate(heads: Tensor, angles: Tensor) -> Tensor:
    """Rotate the channel pairs of patch tokens, the last tokens.

    Channel i is paired with channel i + d / 2.

    Args:
        heads (Tensor): Queries or keys, (B, heads, N, d).
        angles (Tensor): Angles of the last n tokens, (1 or B, 1, n, d). The
            first N - n tokens are left unchanged.

    Returns:
        Tensor: (B, heads, N, d), of the type of ``heads``.
    """
    others, patches = heads.split(
        [heads.shape[2] - angles.shape[2], angles.shape[2]], dim=2
    )
    with no_autocast(heads):
        first, second = patches.float().chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
        patches = patches * angles.cos() + turned * angles.sin()
    return torch.cat((others, patches.to(heads.dtype)), dim=2)
