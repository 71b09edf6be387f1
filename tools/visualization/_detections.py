# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The work of detections.py: a detector, and what it finds."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import mmcv
import numpy as np
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.registry import init_default_scope
from mmengine.runner import load_checkpoint
from torch import nn

from mmmoca.files import whole


def load_model(cfg: Config, checkpoint: str) -> nn.Module:
    """Build a detector and load all of it.

    Args:
        cfg (Config): The config that it was trained by.
        checkpoint (str): The checkpoint file.

    Returns:
        nn.Module: The detector, ready for mmdet's ``inference_detector``; its
        ``dataset_meta`` names the classes.

    Raises:
        RuntimeError: If the checkpoint is of another model.
    """
    from mmdet.registry import DATASETS, MODELS

    init_default_scope('mmdet')
    # The checkpoint has all weights: what it started from may be gone.
    cfg.model.backbone.init_cfg = None
    model = MODELS.build(cfg.model)
    loaded = load_checkpoint(model, checkpoint, 'cpu', strict=True)
    model.cfg = cfg
    model.dataset_meta = loaded.get('meta', {}).get('dataset_meta')
    if model.dataset_meta is None:
        source = dict(cfg.test_dataloader.dataset, lazy_init=True)
        model.dataset_meta = DATASETS.build(source).metainfo
    return model.eval().to(get_device())


def draw(
    model: nn.Module, images: list[Path], score_thr: float
) -> Iterator[np.ndarray]:
    """Draw what a detector finds.

    Args:
        model (nn.Module): See :func:`load_model`.
        images (List[Path]): Image files.
        score_thr (float): Draw what has at least this score.

    Yields:
        np.ndarray: Each picture, RGB, (H, W, 3), uint8.
    """
    from mmdet.apis import inference_detector
    from mmdet.visualization import DetLocalVisualizer

    visualizer = DetLocalVisualizer()
    visualizer.dataset_meta = model.dataset_meta
    for path in images:
        visualizer.add_datasample(
            path.name,
            mmcv.imread(str(path), channel_order='rgb'),
            inference_detector(model, str(path)),
            draw_gt=False,
            pred_score_thr=score_thr,
        )
        yield visualizer.get_image()


def write_pictures(args: argparse.Namespace) -> Iterator[Path]:
    """Draw what a detector finds in some images, and write it.

    Args:
        args (argparse.Namespace): The arguments.

    Yields:
        Path: Each picture that was written.
    """
    cfg = Config.fromfile(args.config)
    cfg.merge_from_dict(args.cfg_options)
    model = load_model(cfg, args.checkpoint)
    pictures = draw(model, args.images, args.score_thr)
    for path, picture in zip(args.images, pictures):
        target = args.out / path.name
        with whole(target) as temporary:
            mmcv.imwrite(picture[..., ::-1], str(temporary))
        yield target
