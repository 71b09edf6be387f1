# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""One picture of what a model has learnt."""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from mmmoca.models import MOCA

from .blocks import SHARP, draw_blocks
from .feature_maps import feature_and_word_colors
from .neighbours import Neighbours
from .pictures import masked_picture, to_picture


@torch.no_grad()
def draw_overview(
    model: MOCA,
    untrained: MOCA,
    images: Tensor,
    neighbours: Sequence[Neighbours] = (),
    names: Sequence[str] | None = None,
) -> Figure:
    """Draw a row for each image: masks, features, words and neighbours.

    Masks come from torch's generator.

    Args:
        model (MOCA): The pretrained model.
        untrained (MOCA): The same model with initial weights, on the same
            device.
        images (Tensor): Packed images of the size that the model trains on,
            (N, C, H, W), uint8.
        neighbours (Sequence[Neighbours]): Blocks of nearest images.
        names (Sequence[str], optional): Names of the rows.

    Returns:
        Figure: The figure.

    Raises:
        ValueError: If the images are not of the model's size.
    """
    size, shape = tuple(model.backbone.img_size), tuple(images.shape[-2:])
    if shape != size:
        raise ValueError(
            f'the pictures need images of the size {size} that the model '
            f'trains on, got {shape}; let the pipeline crop to it'
        )
    data = dict(inputs=images, data_samples=[])
    inputs = model.data_preprocessor(data, False)['inputs']
    # Images are BGR if our preprocessor, or mmpretrain's, converts them.
    names_of_it = 'to_rgb', '_channel_conversion'
    bgr = any(getattr(model.data_preprocessor, n, False) for n in names_of_it)
    pictures = [to_picture(image, bgr) for image in images]
    features, words = feature_and_word_colors(model, inputs)
    before, _ = feature_and_word_colors(untrained, inputs)
    blocks = [
        ('image', [''], [[picture] for picture in pictures]),
        (
            'student sees',
            [f'round {i + 1}' for i in range(len(model.masking.counts))],
            _masked_views(model, pictures),
        ),
        (
            'PCA of patch features',
            ['untrained', 'pretrained'],
            list(zip(before, features)),
        ),
        (
            'codebook',
            ['word of each patch'],
            [[_enlarge(word)] for word in words],
        ),
    ]
    for block in neighbours:
        found = [
            [to_picture(block.dataset[row]['inputs'], bgr) for row in rows]
            for rows in block.rows
        ]
        titles = [''] * max(map(len, found))
        blocks.append((block.title, titles, found))
    frames = [None] * 4 + [block.same_class for block in neighbours]
    legend = 'grey: masked;  hatched: masked and to be predicted'
    if any(frames):
        legend += ';  green frame: same class, red frame: another'
    return draw_blocks(blocks, frames, names, shape[0] / shape[1], legend)


def _masked_views(
    model: MOCA, pictures: Sequence[np.ndarray]
) -> list[list[np.ndarray]]:
    grid = model.backbone.patch_resolution
    masks = model.masking.draw(len(pictures), torch.device('cpu'))
    return [
        [
            masked_picture(
                _enlarge(picture),
                mask.visible[index].numpy(),
                mask.predicted[index].numpy(),
                grid,
            )
            for mask in masks
        ]
        for index, picture in enumerate(pictures)
    ]


def _enlarge(picture: np.ndarray) -> np.ndarray:
    """Repeat the pixels of a small picture, so that it is not smoothed."""
    scale = max(1, SHARP // max(picture.shape[:2]))
    return picture.repeat(scale, axis=0).repeat(scale, axis=1)
