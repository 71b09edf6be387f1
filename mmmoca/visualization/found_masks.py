# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Masks found in context beside the true ones."""

import copy
from pathlib import Path

import numpy as np
import torch
from matplotlib.colors import to_rgb
from torch.utils.data import Dataset, Subset

from mmmoca.datasets import ResizeBands
from mmmoca.datasets.masks import IGNORED, mask_beside, read_mask
from mmmoca.evaluation import extract_features
from mmmoca.evaluation.protocols.in_context import in_context_masks
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
            searched; if it is the same set, without those that are shown.
        bgr (bool): Whether the first channel of images is blue.
        num_workers (int): Processes that read images.

    Returns:
        Block: The masks, over the images; None if the images shown or the
        others have none, or are of bands.
    """
    dataset, rows = bank
    if dataset is queries[0]:
        rows = [row for row in rows if row not in queries[1]]
    shown, known = _masks(*queries), _masks(dataset, rows)
    if not shown or not known:
        return None
    sets = []
    for images, masks in ((dataset, known), (queries[0], shown)):
        found, _ = extract_features(
            Subset(images, [*masks]),
            model.data_preprocessor,
            dict(maps=lambda x: model.teacher.encode(x).patches.mT),
            50,
            num_workers,
        )
        maps = found['maps'].unflatten(2, model.backbone.patch_resolution)
        sets.append((maps, [*masks.values()]))
    found, size = in_context_masks(*sets, PATCHES)
    found = dict(zip(shown, found))
    rows = [
        [
            blended(to_picture(queries[0][row]['inputs'], bgr), masks[row])
            for masks in (found, shown)
            if row in masks
        ]
        for row in queries[1]
    ]
    return Block('masks', [f'in context, {size} patches', 'true'], rows)


def _masks(dataset: Dataset, rows: list[int]) -> dict[int, np.ndarray]:
    """Masks of some rows, evenly taken, resized and cropped as the images."""
    _, *steps, _ = map(copy.copy, dataset.pipeline.transforms)
    if any(isinstance(step, ResizeBands) for step in steps):
        return {}  # it knows no nearest pixel
    found = {}
    for row in rows:
        image = Path(str(dataset.get_data_info(row).get('img_path', row)))
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


def blended(picture: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Lay the colours of labels over the greys of a picture, (H, W, 3).

    Label 0 darkens it, and 255 leaves it as it is.
    """
    colors = np.array([to_rgb(color) for color in COLORS])
    shown = np.where(mask[..., None] > 0, colors[(mask - 1) % len(colors)], 0)
    grey = picture.mean(axis=2, keepdims=True)
    known = (mask < IGNORED)[..., None]
    return np.where(known, 0.4 * grey + 0.6 * shown, picture)
