# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The work of segmentation.py: a segmentor, its maps and their picture."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import mmcv
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.device import get_device
from mmengine.registry import init_default_scope
from mmengine.runner import load_checkpoint
from mmseg.models import BaseSegmentor
from mmseg.registry import DATASETS, MODELS
from mmseg.visualization import SegLocalVisualizer

WIDTH = 4.5  # of a picture, in inches


class Row(NamedTuple):
    """A row of the picture.

    Attributes:
        name (str): Name of the image file.
        pictures (List[np.ndarray]): RGB, (H, W, 3), uint8.
        titles (List[str]): What each picture is.
        classes (List[int]): Classes that occur in truth or prediction.
    """

    name: str
    pictures: list[np.ndarray]
    titles: list[str]
    classes: list[int]


def build_model(cfg: Config, checkpoint: str) -> tuple[BaseSegmentor, dict]:
    """Build the segmentor and load all of its parameters.

    Args:
        cfg (Config): The config that it was trained by.
        checkpoint (str): The checkpoint file.

    Returns:
        Tuple[BaseSegmentor, dict]: The model in eval mode, and the meta data
        of the data set (``classes``, ``palette``) that it was trained on.

    Raises:
        RuntimeError: If the checkpoint is of another model.
    """
    model = MODELS.build(cfg.model)
    loaded = load_checkpoint(model, checkpoint, 'cpu', strict=True)
    meta = loaded.get('meta', {}).get('dataset_meta')
    if meta is None:
        source = dict(cfg.val_dataloader.dataset, lazy_init=True)
        meta = DATASETS.build(source).metainfo
    return model.eval().to(get_device()), meta


def samples(
    cfg: Config, images: Sequence[Path], indices: Sequence[int]
) -> Iterator[dict]:
    """Inputs of the model: of files, or of the validation set with truth.

    Args:
        cfg (Config): The config.
        images (Sequence[Path]): Image files; if there are none, the validation
            set is read.
        indices (Sequence[int]): Which of its images.

    Yields:
        dict: What ``test_step`` takes.
    """
    source = cfg.val_dataloader.dataset
    if images:
        pipeline = Compose(
            [
                step
                for step in source.pipeline
                if step.type.split('.')[-1] != 'LoadAnnotations'
            ]
        )
        for path in images:
            yield pseudo_collate([pipeline(dict(img_path=str(path)))])
        return
    dataset = DATASETS.build(source)
    for index in indices:
        yield pseudo_collate([dataset[index % len(dataset)]])


@torch.no_grad()
def draw_row(
    model: BaseSegmentor, visualizer: SegLocalVisualizer, data: dict
) -> Row:
    """Predict an image and draw the maps over it.

    Args:
        model (BaseSegmentor): The model.
        visualizer (SegLocalVisualizer): Knows classes and palette.
        data (dict): Of :func:`samples`.

    Returns:
        Row: Image, truth if there is one, and prediction.
    """
    (sample,) = model.test_step(data)
    sample = sample.cpu()
    image = mmcv.imread(sample.img_path, channel_order='rgb')
    pictures, titles, seen = [image], ['image'], set()
    for key, title in (
        ('gt_sem_seg', 'truth'),
        ('pred_sem_seg', 'prediction'),
    ):
        if key not in sample:
            continue
        visualizer.add_datasample(
            title,
            image,
            sample,
            draw_gt=title == 'truth',
            draw_pred=title == 'prediction',
            with_labels=False,
        )
        pictures.append(visualizer.get_image())
        titles.append(title)
        seen |= set(sample.get(key).data.unique().tolist())
    count = len(visualizer.dataset_meta['classes'])
    classes = sorted(int(label) for label in seen if label < count)
    return Row(Path(sample.img_path).name, pictures, titles, classes)


def compose(rows: Sequence[Row], meta: dict) -> Figure:
    """Lay the rows out, with the colours of the classes that occur.

    Args:
        rows (Sequence[Row]): At least one.
        meta (dict): ``classes`` and ``palette`` (RGB, 0 to 255).

    Returns:
        Figure: To be written by its ``savefig``.
    """
    columns = max(len(row.pictures) for row in rows)
    heights = [
        row.pictures[0].shape[0] / row.pictures[0].shape[1] for row in rows
    ]
    total = WIDTH * sum(heights) + 0.35 * len(rows) + 0.9
    figure = Figure((WIDTH * columns, total), layout='constrained')
    grid = figure.subplots(
        len(rows), columns, squeeze=False, height_ratios=heights
    )
    for row, line in zip(rows, grid):
        for axes in line:
            axes.axis('off')
        for axes, picture, title in zip(line, row.pictures, row.titles):
            axes.imshow(picture)
            axes.set_title(
                f'{row.name}' if title == 'image' else title, fontsize=9
            )
    present = sorted({label for row in rows for label in row.classes})
    handles = [
        Patch(
            color=np.array(meta['palette'][label]) / 255,
            label=meta['classes'][label],
        )
        for label in present
    ]
    figure.legend(
        handles=handles, loc='outside lower center', ncols=10, fontsize=8
    )
    return figure


def draw(args: argparse.Namespace) -> Figure:
    """Draw truth and prediction over images.

    Args:
        args (argparse.Namespace): The arguments.

    Returns:
        Figure: To be written by its ``savefig``.
    """
    cfg = Config.fromfile(args.config)
    cfg.merge_from_dict(args.cfg_options)
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    model, meta = build_model(cfg, args.checkpoint)
    visualizer = SegLocalVisualizer(alpha=args.opacity)
    visualizer.dataset_meta = meta
    rows = [
        draw_row(model, visualizer, data)
        for data in samples(cfg, args.images, args.indices)
    ]
    return compose(rows, meta)
