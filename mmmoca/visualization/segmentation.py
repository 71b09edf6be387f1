# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Segmentation maps over their images, truth beside prediction."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import mmcv
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from mmseg.apis import MMSegInferencer
from mmseg.structures import SegDataSample

__all__ = ['MapRow', 'draw_maps', 'predict_row']

WIDTH = 4.5  # of a picture, in inches


class MapRow(NamedTuple):
    """An image and maps over it.

    Attributes:
        pictures (dict[str, np.ndarray]): Title -> RGB, (H, W, 3), uint8.
        labels (set[int]): Classes that occur in truth or prediction.
    """

    pictures: dict[str, np.ndarray]
    labels: set[int]


def predict_row(
    inferencer: MMSegInferencer,
    path: str,
    opacity: float,
    truth: SegDataSample | None = None,
) -> MapRow:
    """Predict an image and draw the maps over it.

    Args:
        inferencer (MMSegInferencer): Knows model, classes and palette.
        path (str): The image file.
        opacity (float): Of the colours, 0 to 1.
        truth (SegDataSample, optional): With ``gt_sem_seg`` of the image.

    Returns:
        MapRow: Image, truth if there is one, and prediction.
    """
    found = inferencer(
        path, return_vis=True, opacity=opacity, with_labels=False
    )
    image = mmcv.imread(path, channel_order='rgb')
    pictures = {Path(path).name: image}
    labels = set(np.unique(found['predictions']).tolist())
    if truth is not None:
        inferencer.visualizer.add_datasample(
            'truth', image, truth, draw_pred=False, with_labels=False
        )
        pictures['truth'] = inferencer.visualizer.get_image()
        labels |= set(truth.gt_sem_seg.data.unique().tolist())
    pictures['prediction'] = found['visualization']
    # All others, such as 255, are drawn in no colour.
    classes = inferencer.visualizer.dataset_meta['classes']
    return MapRow(pictures, labels & set(range(len(classes))))


def draw_maps(rows: Sequence[MapRow], meta: dict) -> Figure:
    """Lay rows out, with the colours of the classes that occur.

    Args:
        rows (Sequence[MapRow]): At least one.
        meta (dict): ``classes`` and ``palette`` (RGB, 0 to 255).

    Returns:
        Figure: To be written by its ``savefig``.
    """
    columns = max(len(row.pictures) for row in rows)
    shapes = [next(iter(row.pictures.values())).shape for row in rows]
    heights = [shape[0] / shape[1] for shape in shapes]
    total = WIDTH * sum(heights) + 0.35 * len(rows) + 0.9
    figure = Figure((WIDTH * columns, total), layout='constrained')
    grid = figure.subplots(
        len(rows), columns, squeeze=False, height_ratios=heights
    )
    for row, line in zip(rows, grid):
        for axes in line:
            axes.axis('off')
        for axes, (title, picture) in zip(line, row.pictures.items()):
            axes.imshow(picture)
            axes.set_title(title, fontsize=9)
    handles = [
        Patch(
            color=np.array(meta['palette'][label]) / 255,
            label=meta['classes'][label],
        )
        for label in sorted(set.union(*(row.labels for row in rows)))
    ]
    figure.legend(
        handles=handles, loc='outside lower center', ncols=10, fontsize=8
    )
    return figure
