# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Masks found in context beside the true ones."""

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.colors import to_rgb
from torch.utils.data import Dataset, Subset

from mmmoca.datasets import ResizeBands
from mmmoca.datasets.masks import IGNORED, mask_beside, read_mask
from mmmoca.evaluation import extract_features
from mmmoca.evaluation.dense import in_context_masks
from mmmoca.models import MOCA

from .blocks import Block
from .pictures import COLORS, to_picture

# Images and patches of the bank: minutes at most, on a CPU.
IMAGES, PATCHES = 200, 102_400


@torch.no_grad()
def mask_block(
    model: MOCA,
    queries: tuple[Dataset, list[int]],
    bank: tuple[Dataset, list[int]],
    bgr: bool,
    num_workers: int = 0,
) -> Block | None:
    """Segment images by the masks of others.

    Args:
        model (MOCA): The pretrained model, of which the teacher is taken.
        queries (tuple[Dataset, list[int]]): Images, and the rows to show.
        bank (tuple[Dataset, list[int]]): Images, and those that may be
            searched. Images that are shown are left out, also if it is the
            same set.
        bgr (bool): Whether the first channel of images is blue.
        num_workers (int): Processes that read images.

    Returns:
        Block: The masks, over the images; None if the images shown or the
        others have none, or are of bands.
    """
    shown = _with_masks(*queries)
    known = _with_masks(*bank)
    own = {_path(queries[0], row) for row in queries[1]}
    known = [row for row in known if _path(bank[0], row) not in own]
    if not shown or not known:
        return None
    known = known[:: -(-len(known) // IMAGES)]

    def prepared(dataset: Dataset, rows: list[int]) -> tuple:
        found, _ = extract_features(
            Subset(dataset, rows),
            model.data_preprocessor,
            dict(maps=lambda x: model.teacher.encode(x).patches.mT),
            50,
            num_workers,
        )
        maps = found['maps'].unflatten(2, model.backbone.patch_resolution)
        return maps.numpy(), [shown_mask(dataset, row) for row in rows]

    train, val = prepared(bank[0], known), prepared(queries[0], shown)
    masks = [*train[1], *val[1]]
    classes = 1 + max(int(m[m < IGNORED].max(initial=0)) for m in masks)
    found, size = in_context_masks(train, val, classes, PATCHES)
    pictures = {
        row: [
            blended(to_picture(queries[0][row]['inputs'], bgr), mask)
            for mask in pair
        ]
        for row, *pair in zip(shown, found, val[1])
    }
    return Block(
        'masks',
        [f'in context, {size} patches', 'true'],
        [pictures.get(row, []) for row in queries[1]],
    )


def shown_mask(dataset: Dataset, row: int) -> np.ndarray:
    """The mask of an image, resized and cropped as the image is, (H, W)."""
    path = _path(dataset, row)
    mask = read_mask(mask_beside(path), path)
    results = dict(img=mask, img_shape=mask.shape)
    for step in dataset.pipeline.transforms[1:-1]:  # no loading, no packing
        step = copy.copy(step)
        step.interpolation = 'nearest'
        results = step(results)
    return results['img']


def blended(picture: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Lay the colours of labels over a picture, (H, W, 3).

    Label 0 is black, and 255 leaves the picture as it is.
    """
    cycle = np.array([to_rgb(color) for color in COLORS])
    numbers = np.arange(255)
    palette = cycle[numbers % len(cycle)]
    # Further labels have the same colours, darker.
    palette *= 0.7 ** (numbers // len(cycle))[:, None]
    palette = np.concatenate((np.zeros((1, 3)), palette))
    known = (mask < IGNORED)[..., None]
    return np.where(known, 0.4 * picture + 0.6 * palette[mask], picture)


def _with_masks(dataset: Dataset, rows: Sequence[int]) -> list[int]:
    """Those of some rows that have a mask, none if they are of bands."""
    steps = dataset.pipeline.transforms
    if any(isinstance(step, ResizeBands) for step in steps):
        return []  # it has no nearest neighbours
    return [row for row in rows if mask_beside(_path(dataset, row))]


def _path(dataset: Dataset, row: int) -> Path:
    return Path(str(dataset.get_data_info(row).get('img_path', row)))
