# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The panels of an overview: one function for each kind of picture."""

import copy
import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mmmoca.apis import Encoder
from mmmoca.datasets import ResizeBands
from mmmoca.datasets.masks import mask_beside, read_mask
from mmmoca.evaluation import knn_search
from mmmoca.evaluation.protocols.in_context import in_context_masks
from mmmoca.models import OnlineCodebook
from mmmoca.models.masking import Mask

from .gallery import Gallery
from .pictures import blended, enlarged, masked_picture, pca_colors
from .tiles import Panel

NEAREST = 5
# Largest number of images with masks, and of patches in the bank. With these
# limits a CPU needs minutes at most.
IMAGES, PATCHES = 200, 102_400


def student_panel(
    pictures: Sequence[np.ndarray],
    masks: Sequence[Mask],
    grid: tuple[int, int],
) -> Panel:
    """Draw what the student sees of each image in each round.

    Args:
        pictures (Sequence[np.ndarray]): The images, (H, W, 3) each.
        masks (Sequence[Mask]): The masks of all images, for each round.
        grid (tuple[int, int]): Rows and columns of patches.
    """
    rows = [
        [
            masked_picture(
                enlarged(picture),
                mask.visible[index].numpy(),
                mask.predicted[index].numpy(),
                grid,
            )
            for mask in masks
        ]
        for index, picture in enumerate(pictures)
    ]
    rounds = [f'round {i + 1}' for i in range(len(masks))]
    return Panel('student sees', rounds, rows)


@torch.no_grad()
def dense_patches(
    encoder: Encoder, images: Tensor, stride: tuple[int, int]
) -> Tensor:
    """Compute patch features on a grid finer than the patches.

    The encoder sees the image shifted in steps of the stride, by less than a
    patch. The features of all shifts are placed at the centres of their
    patches. (Enlarging the image instead would change its textures.)

    Args:
        encoder (Encoder): The encoder.
        images (Tensor): Normalised images, (B, C, H, W).
        stride (tuple[int, int]): Distance between neighbouring features in
            pixels, down and across, a divisor of the patch size.

    Returns:
        Tensor: (B, D, H / stride, W / stride).
    """
    patch = encoder.backbone.patch_embed.projection.kernel_size
    height, width = images.shape[-2:]
    shifts = patch[0] // stride[0], patch[1] // stride[1]
    margin = patch[1] // 2, patch[1] // 2, patch[0] // 2, patch[0] // 2
    padded = F.pad(images, margin, mode='reflect')
    size = height // stride[0], width // stride[1]
    dense = images.new_empty(len(images), encoder.backbone.embed_dims, *size)
    for i, j in product(*map(range, shifts)):
        top, left = i * stride[0] + stride[0] // 2, j * stride[1]
        left += stride[1] // 2
        shifted = padded[..., top : top + height, left : left + width]
        dense[..., i :: shifts[0], j :: shifts[1]] = encoder(shifted).patches
    return dense


def feature_and_word_colors(
    encoder: Encoder, codebook: OnlineCodebook, inputs: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the colours of patch features and of their nearest words.

    Args:
        encoder (Encoder): The encoder.
        codebook (OnlineCodebook): The codebook.
        inputs (Tensor): Normalised images, (N, C, H, W).

    Returns:
        tuple[np.ndarray, np.ndarray]: Colours of the features and of the
        words, (N, h, w, 3) each.
    """
    # The stride is 4 pixels for patches of 16, 7 for 14 and 2 for 8.
    patch = encoder.backbone.patch_embed.projection.kernel_size
    stride = tuple(side // math.gcd(side, 4) for side in patch)
    tokens = dense_patches(encoder, inputs, stride).cpu()
    words = codebook.words
    if (mean := codebook.token_mean) is not None:
        mean = mean.T.unflatten(1, encoder.backbone.patch_resolution)
        tokens -= F.interpolate(mean[None], tokens.shape[2:], mode='nearest')
    tokens = F.normalize(tokens, dim=1).permute(0, 2, 3, 1)
    # One image at a time, to save memory: each position has a similarity to
    # each word.
    assigned = torch.stack(
        [(image @ words.T).argmax(dim=-1) for image in tokens]
    )
    features, words = pca_colors(tokens.numpy(), words[assigned].numpy())
    return features, words


def feature_panels(
    encoder: Encoder,
    untrained: Encoder,
    codebook: OnlineCodebook,
    inputs: Tensor,
) -> list[Panel]:
    """Draw patch features before and after training, and their words.

    The words are those nearest to the features after training.

    Args:
        encoder (Encoder): The teacher.
        untrained (Encoder): The teacher with initial weights.
        codebook (OnlineCodebook): The codebook.
        inputs (Tensor): Normalised images, (N, C, H, W).
    """
    before, _ = feature_and_word_colors(untrained, codebook, inputs)
    features, words = feature_and_word_colors(encoder, codebook, inputs)
    columns = ['untrained', 'pretrained']
    shown = [[enlarged(word)] for word in words]
    return [
        Panel('PCA of patch features', columns, [*zip(before, features)]),
        Panel('codebook', ['word of each patch'], shown),
    ]


def mask_panel(
    encoder: Encoder, shown: Gallery, bank: Gallery, num_workers: int = 0
) -> Panel | None:
    """Draw masks predicted from other images' masks, next to the true masks.

    Args:
        encoder (Encoder): The teacher.
        shown (Gallery): The images to segment.
        bank (Gallery): Images to search. Those that are shown are left out.
        num_workers (int): Number of processes that read images.

    Returns:
        Panel: The masks, laid over the images. None if the images shown or the
        other images have no masks, or if ResizeBands resizes them.
    """
    own = shown.places_in(bank)
    bank = bank.part([i for i in range(len(bank)) if i not in own])
    true, known = _masks(shown), _masks(bank)
    if not true or not known:
        return None
    options = dict(features='patches', num_workers=num_workers)
    kept, asked = (
        (encoder.embed(part, **options).patches, [*masks.values()])
        for part, masks in (
            (bank.part([*known]), known),
            (shown.part([*true]), true),
        )
    )
    found, size = in_context_masks(kept, asked, PATCHES)
    found = dict(zip(true, found))
    rows = [
        [blended(shown.picture(i), m[i]) for m in (found, true) if i in m]
        for i in range(len(shown))
    ]
    return Panel('masks', [f'in context, {size} patches', 'true'], rows)


def _masks(images: Gallery) -> dict[int, np.ndarray]:
    """Load up to IMAGES masks, resized and cropped like their images."""
    steps = [copy.copy(step) for step in images.transforms]
    if isinstance(steps[0], ResizeBands):
        return {}  # it has no nearest-pixel interpolation
    found = {}
    for row in range(len(images)):
        image = Path(images.path(row) or '')
        if path := mask_beside(image):
            found[row] = path, image
    masks = {}
    for row in [*found][:: -(-len(found) // IMAGES) or 1]:
        mask = read_mask(*found[row])
        results = dict(img=mask, img_shape=mask.shape)
        for step in steps:
            step.interpolation = 'nearest'
            results = step(results)
        masks[row] = results['img']
    return masks


def nearest_panel(name: str, shown: Gallery, bank: Gallery) -> Panel:
    """Draw the nearest images of each image, without the image itself.

    Args:
        name (str): Name of the features.
        shown (Gallery): The images.
        bank (Gallery): The images that are searched.
    """
    features = shown.features[name], bank.features[name]
    found = knn_search(*features, NEAREST + 1)[1].tolist()
    rows, same = [], []
    for near, own, label in zip(found, shown.places_in(bank), shown.labels):
        near = [i for i in near if i != own][:NEAREST]
        rows.append([bank.picture(i) for i in near])
        same.append([bank.labels[i] == label for i in near])
    if None in shown.labels:
        same = None
    return Panel(f'nearest images by {name}', [''] * NEAREST, rows, same)
