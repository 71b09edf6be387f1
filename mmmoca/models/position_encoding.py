# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Fixed 2-D sine-cosine positions with explicit (H, W) grids."""

import torch
from torch import Tensor


def sincos_positions_2d(grid: tuple[int, int], dim: int) -> Tensor:
    """Compute sine-cosine positions in MAE's order: column index first.

    Channels are [sin(x), cos(x), sin(y), cos(y)], a quarter of ``dim`` each,
    where x counts columns and y rows.

    Args:
        grid (tuple[int, int]): Rows and columns of patches, (H, W).
        dim (int): Channels, a multiple of 4.

    Returns:
        Tensor: Positions in row-major order, (H * W, dim), float32.

    Raises:
        ValueError: If ``dim`` is not a multiple of 4.
    """
    if dim % 4:
        raise ValueError(
            '2-D sine-cosine positions need a width that is a '
            f'multiple of 4, got {dim}'
        )
    height, width = grid
    quarter = torch.arange(dim // 4, dtype=torch.float64) / (dim // 4)
    frequency = 10000.0**-quarter
    rows = torch.arange(height, dtype=torch.float64).repeat_interleave(width)
    columns = torch.arange(width, dtype=torch.float64).repeat(height)
    angles_x = columns[:, None] * frequency  # (H * W, dim / 4)
    angles_y = rows[:, None] * frequency
    return torch.cat(
        (angles_x.sin(), angles_x.cos(), angles_y.sin(), angles_y.cos()), dim=1
    ).float()
