# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features of whole data sets, and of every place of an image."""

from collections.abc import Callable

import torch
from mmengine.dataset import default_collate
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from mmmoca.models import MOCAViT

__all__ = ['dense_patches', 'extract_features', 'raw_pixels']


def raw_pixels(inputs: Tensor, max_side: int = 48) -> Tensor:
    """The pixels of each image as its feature, the baseline of k-NN.

    Args:
        inputs (Tensor): Images, (B, C, H, W), float.
        max_side (int): Larger images are shrunk to this longer side, in
            pixels. Defaults to 48.

    Returns:
        Tensor: Pixels of zero mean and unit variance within each image,
        (B, D).
    """
    shrink = max_side / max(inputs.shape[-2:])
    if shrink < 1:
        size = [max(1, round(side * shrink)) for side in inputs.shape[-2:]]
        inputs = F.interpolate(inputs, size, mode='bilinear', antialias=True)
    pixels = inputs.flatten(1)
    return F.layer_norm(pixels, pixels.shape[1:])


@torch.no_grad()
def extract_features(
    dataset: Dataset,
    data_preprocessor: nn.Module,
    encoders: dict[str, Callable[[Tensor], Tensor]],
    batch_size: int = 250,
    num_workers: int = 0,
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Read all images once and describe each by one or several encoders.

    Args:
        dataset (Dataset): Gives ``inputs``, images of equal size, and
            ``data_samples``.
        data_preprocessor (nn.Module): The model's; normalises a batch.
        encoders (Dict[str, Callable]): Name -> function from normalised
            images (B, C, H, W) to features (B, D).
        batch_size (int): Images at a time. Defaults to 250.
        num_workers (int): Processes that read. Defaults to 0, this one.

    Returns:
        Tuple[Dict[str, Tensor], Tensor | None]: L2-normalised features of
        each encoder, (N, D), float32, on the CPU; and the class labels,
        (N, ), int64, or None if the images have none.
    """
    loader = DataLoader(
        dataset,
        batch_size,
        num_workers=num_workers,
        collate_fn=default_collate,
    )
    features = {name: [] for name in encoders}
    labels = []
    for batch in loader:
        data = data_preprocessor(batch, False)
        labels += [
            sample.gt_label
            for sample in data['data_samples']
            if 'gt_label' in sample
        ]
        for name, encode in encoders.items():
            feature = encode(data['inputs']).float()
            features[name].append(F.normalize(feature, dim=1).cpu())
    joined = {name: torch.cat(parts) for name, parts in features.items()}
    return joined, torch.cat(labels).cpu() if labels else None


@torch.no_grad()
def dense_patches(
    encoder: MOCAViT, images: Tensor, stride: tuple[int, int]
) -> Tensor:
    """Patch features on a grid finer than the patches.

    The encoder sees the image shifted by every multiple of the stride, and
    the patches of all shifts are put where their centres lie. An enlarged
    image would be another way, but features of enlarged textures are not
    those that the encoder has of the image.

    Args:
        encoder (MOCAViT): The encoder.
        images (Tensor): Normalised images, (B, C, H, W).
        stride (Tuple[int, int]): Distance of neighbouring features in
            pixels, down and across; divides the patch size.

    Returns:
        Tensor: (B, H / stride, W / stride, D).

    Raises:
        ValueError: If the stride does not divide the patch size.
    """
    patch = tuple(encoder.patch_size)
    if any(side % step for side, step in zip(patch, stride)):
        raise ValueError(
            f'stride {tuple(stride)} must divide the patch size {patch}'
        )
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
