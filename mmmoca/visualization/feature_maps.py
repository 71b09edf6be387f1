# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Dense features of an image, and their colours."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mmmoca.models import MOCA, MOCAViT

from .pictures import pca_colors


@torch.no_grad()
def dense_patches(
    encoder: MOCAViT, images: Tensor, stride: tuple[int, int]
) -> Tensor:
    """Compute patch features on a grid finer than the patches.

    The encoder sees the image shifted by every multiple of the stride. The
    features of all shifts are placed at the centres of their patches.
    (Enlarging the image instead would change its textures.)

    Args:
        encoder (MOCAViT): The encoder.
        images (Tensor): Normalised images, (B, C, H, W).
        stride (tuple[int, int]): Distance of neighbouring features in
            pixels, down and across, a divisor of the patch size.

    Returns:
        Tensor: (B, H / stride, W / stride, D).
    """
    patch = tuple(encoder.patch_size)
    height, width = images.shape[-2:]
    grid = height // patch[0], width // patch[1]
    shifts = patch[0] // stride[0], patch[1] // stride[1]
    margin = patch[1] // 2, patch[1] // 2, patch[0] // 2, patch[0] // 2
    padded = F.pad(images, margin, mode='reflect')
    rows = []
    for i in range(shifts[0]):
        top = i * stride[0] + stride[0] // 2
        row = []
        for j in range(shifts[1]):
            left = j * stride[1] + stride[1] // 2
            shifted = padded[..., top : top + height, left : left + width]
            row.append(encoder.encode(shifted).patches.unflatten(1, grid))
        rows.append(torch.stack(row, dim=3))  # (B, rows, columns, shifts, D)
    dense = torch.stack(rows, dim=2)  # (B, rows, shifts, columns, shifts, D)
    return dense.flatten(3, 4).flatten(1, 2)


def feature_and_word_colors(
    model: MOCA, inputs: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Colour the teacher's features and the words nearest to them.

    Args:
        model (MOCA): The model.
        inputs (Tensor): Normalised images, (N, C, H, W).

    Returns:
        tuple[np.ndarray, np.ndarray]: Colours, (N, h, w, 3) each.
    """
    # A quarter of the patch, if 4 divides it.
    patch = model.teacher.patch_size
    stride = tuple(side // 4 if side % 4 == 0 else side for side in patch)
    tokens = dense_patches(model.teacher, inputs, stride).float()
    words = model.codebook.words
    if (mean := model.codebook.token_mean) is not None:
        mean = mean.unflatten(0, model.backbone.patch_resolution)
        mean = F.interpolate(
            mean.permute(2, 0, 1)[None], tokens.shape[1:3], mode='nearest'
        )
        tokens = tokens - mean[0].permute(1, 2, 0)
    tokens = F.normalize(tokens, dim=-1)
    # One image at a time, since each place has K numbers.
    assigned = torch.stack(
        [(image @ words.T).argmax(dim=-1) for image in tokens]
    )
    features, words = pca_colors(
        tokens.cpu().numpy(), words[assigned].cpu().numpy()
    )
    return features, words
