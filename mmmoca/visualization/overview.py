# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""One picture that shows what a model learnt, image by image."""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from mmmoca.models import MOCA

from .feature_maps import feature_and_word_colors, feature_colors
from .neighbours import Neighbours
from .pictures import masked_picture, to_picture

__all__ = ['draw_overview']

CELL = 0.92  # side of a picture, in inches; all other lengths are cells
GAP, BLOCK_GAP = 0.05, 0.3
LEFT, RIGHT, TOP, BOTTOM = 0.75, 0.12, 0.82, 0.42
FRAMES = {True: '#2a9d4a', False: '#d1495b'}
TEXT = '#222222'
SHARP = 256  # side in pixels from which nothing is smoothed


@torch.no_grad()
def draw_overview(
    model: MOCA,
    untrained: MOCA,
    images: Tensor,
    neighbours: Sequence[Neighbours] = (),
    names: Sequence[str] | None = None,
) -> Figure:
    """Draw a row for each image: masks, features, code words, neighbours.

    The masks are drawn from torch's generator.

    Args:
        model (MOCA): The pretrained model.
        untrained (MOCA): The same model as initialised, on its device.
        images (Tensor): Packed images of the size that the model trains on,
            (N, C, H, W), uint8.
        neighbours (Sequence[Neighbours]): Blocks of nearest images.
        names (Sequence[str], optional): What each row is called.

    Returns:
        Figure: To be written by its ``savefig``.

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
    # Images are BGR if they are to become RGB: by ours, or by mmpretrain's.
    names_of_it = 'to_rgb', '_channel_conversion'
    bgr = any(getattr(model.data_preprocessor, n, False) for n in names_of_it)
    pictures = [to_picture(image, bgr) for image in images]
    features, words = feature_and_word_colors(model, inputs)
    before = feature_colors(untrained.teacher, inputs)
    blocks = [
        ('image', [''], [[picture] for picture in pictures]),
        (
            'what the student sees',
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
    return _compose(blocks, frames, names, shape[0] / shape[1])


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
    """Repeat pixels, for what must not be blurred when it is shown."""
    scale = max(1, SHARP // max(picture.shape[:2]))
    return picture.repeat(scale, axis=0).repeat(scale, axis=1)


def _compose(
    blocks: Sequence[tuple[str, list[str], list]],
    frames: Sequence[Sequence[Sequence[bool]] | None],
    names: Sequence[str] | None,
    aspect: float,
) -> Figure:
    """Lay the blocks out side by side; all lengths in cells until the end."""
    count = len(blocks[0][2])
    columns = [len(titles) for _, titles, _ in blocks]
    left = LEFT if names else RIGHT
    widths = [n + (n - 1) * GAP for n in columns]
    width = left + sum(widths) + BLOCK_GAP * (len(blocks) - 1) + RIGHT
    height = TOP + BOTTOM + count * aspect + (count - 1) * GAP
    figure = Figure((width * CELL, height * CELL), facecolor='white')

    def text(x: float, y: float, label: str, **style) -> None:
        style = dict(color=TEXT, fontsize=8.5, ha='center') | style
        figure.text(x / width, 1 - y / height, label, **style)

    start = left
    for (title, titles, rows), correct, span in zip(blocks, frames, widths):
        text(start + span / 2, TOP - 0.42, title, fontsize=10.5, weight='bold')
        for column, label in enumerate(titles):
            x = start + column * (1 + GAP)
            text(x + 0.5, TOP - 0.12, label)
            for row, pictures in enumerate(rows):
                if column >= len(pictures):
                    continue
                y = TOP + row * (aspect + GAP) + aspect
                axes = figure.add_axes(
                    [x / width, 1 - y / height, 1 / width, aspect / height]
                )
                frame = correct and FRAMES[bool(correct[row][column])]
                _show(axes, pictures[column], frame)
        start += span + BLOCK_GAP
    for row, name in enumerate(names or ()):
        y = TOP + row * (aspect + GAP) + aspect / 2
        text(left - 0.1, y, name, ha='right', va='center')
    legend = 'grey: masked;  hatched: masked and to be predicted'
    if any(correct for correct in frames):
        legend += ';  green frame: same class, red frame: another'
    text(left, height - BOTTOM / 3, legend, ha='left')
    return figure


def _show(axes: Axes, picture: np.ndarray, frame: str | None) -> None:
    axes.set(xticks=[], yticks=[])
    small = 2 * max(picture.shape[:2]) <= SHARP
    axes.imshow(
        picture,
        interpolation='bicubic' if small else 'antialiased',
        aspect='auto',
    )
    axes.spines[:].set_visible(frame is not None)
    axes.spines[:].set(color=frame, linewidth=2.2)
