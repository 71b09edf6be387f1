# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""One picture that shows what a model learnt, image by image."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset

from mmmoca.evaluation import knn_search
from mmmoca.models import MOCA, MOCAViT

from .features import dense_patches
from .pictures import masked_picture, pca_colors, to_picture

__all__ = ['Neighbours', 'draw_overview', 'pick_images']

CELL = 0.92  # side of a picture, in inches; all other lengths are cells
GAP, BLOCK_GAP = 0.05, 0.3
LEFT, RIGHT, TOP, BOTTOM = 0.75, 0.12, 0.82, 0.42
FRAMES = {True: '#2a9d4a', False: '#d1495b'}
TEXT = '#222222'
SHARP = 256  # side in pixels from which nothing is smoothed


class Neighbours(NamedTuple):
    """Nearest images of each row, one block of the picture.

    Attributes:
        title (str): What the block is headed by.
        dataset (Dataset): The bank.
        rows (List[List[int]]): Indices into it for each image, best first.
        same_class (List[List[bool]], optional): Whether each of them is of
            the same class as its image.
    """

    title: str
    dataset: Dataset
    rows: list[list[int]]
    same_class: list[list[bool]] | None = None

    @classmethod
    def search(
        cls,
        title: str,
        dataset: Dataset,
        query: Tensor,
        bank: Tensor,
        labels: tuple[Tensor, Tensor] | None = None,
        own_rows: Sequence[int] | None = None,
        count: int = 5,
    ) -> 'Neighbours':
        """Find the nearest images of each query by cosine similarity.

        Args:
            title (str): What the block is headed by.
            dataset (Dataset): The bank.
            query (Tensor): L2-normalised features, (Q, D).
            bank (Tensor): L2-normalised features of the bank, (N, D).
            labels (Tuple[Tensor, Tensor], optional): Classes of queries and
                bank, (Q, ) and (N, ).
            own_rows (Sequence[int], optional): If the queries are in the
                bank, the row of each, which is left out.
            count (int): Neighbours of each query. Defaults to 5.

        Returns:
            Neighbours: The block.
        """
        own_rows = [None] * len(query) if own_rows is None else own_rows
        rows = [
            [row for row in found if row != own][:count]
            for found, own in zip(
                knn_search(query, bank, count + 1)[1].tolist(), own_rows
            )
        ]
        same_class = None
        if labels is not None:
            same_class = [
                (labels[1][found] == label).tolist()
                for found, label in zip(rows, labels[0])
            ]
        return cls(title, dataset, rows, same_class)


def pick_images(labels: Tensor | None, total: int, count: int) -> list[int]:
    """Pick images by chance, of as many different classes as there are.

    Args:
        labels (Tensor, optional): Class of each image, (total, ).
        total (int): Number of images to pick from.
        count (int): Number of images to pick; all of them if fewer exist.

    Returns:
        List[int]: Indices, sorted by class and then by index.
    """
    order = torch.randperm(total).tolist()
    if labels is None:
        return sorted(order[:count])
    turns = {}  # class -> how many of it come earlier in the order
    ranked = []
    for index in order:
        label = int(labels[index])
        turns[label] = turns.get(label, -1) + 1
        ranked.append((turns[label], len(ranked), index))
    chosen = [index for *_, index in sorted(ranked)[:count]]
    return sorted(chosen, key=lambda index: (int(labels[index]), index))


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
    features, words = _feature_maps(model, inputs)
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
            list(zip(_untrained_map(untrained, inputs), features)),
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


def _stride(encoder: MOCAViT) -> tuple[int, int]:
    """A quarter of the patch where it divides so."""
    return tuple(
        side // 4 if side % 4 == 0 else side for side in encoder.patch_size
    )


def _dense(encoder: MOCAViT, inputs: Tensor) -> Tensor:
    training = encoder.training
    encoder.eval()
    tokens = dense_patches(encoder, inputs, _stride(encoder))
    encoder.train(training)
    return F.normalize(tokens.float(), dim=-1)  # (N, h, w, D)


def _feature_maps(
    model: MOCA, inputs: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Colours of the teacher's features and of their words, (N, h, w, 3)."""
    tokens = _dense(model.teacher, inputs)
    codebook = model.codebook
    # Image by image: K numbers for each place add up.
    assigned = torch.stack(
        [codebook.assign(image).argmax(dim=-1) for image in tokens]
    )
    features, words = pca_colors(
        tokens.cpu().numpy(), codebook.words.cpu().numpy()
    )
    return features, words[assigned.cpu().numpy()]


def _untrained_map(untrained: MOCA, inputs: Tensor) -> np.ndarray:
    tokens = _dense(untrained.teacher, inputs)
    return pca_colors(tokens.cpu().numpy())[0]


def _masked_views(
    model: MOCA, pictures: Sequence[np.ndarray]
) -> list[list[np.ndarray]]:
    grid = model.backbone.patch_resolution
    masks = model.masking.draw(len(pictures), torch.device('cpu'))
    views = []
    for index, picture in enumerate(pictures):
        views.append(
            [
                masked_picture(
                    _enlarge(picture),
                    mask.visible[index].numpy(),
                    mask.predicted[index].numpy(),
                    grid,
                )
                for mask in masks
            ]
        )
    return views


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
