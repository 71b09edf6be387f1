# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Draw what a detector finds: ``python .../detections.py CONFIG CKPT IMAGE``.

Boxes, masks, classes and scores, by mmdet's visualiser.
"""

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import mmmoca  # noqa: F401  checks the installation before all else

# isort: split

import mmcv
import numpy as np
from mmengine.config import Config, DictAction
from mmengine.device import get_device
from mmengine.registry import init_default_scope
from mmengine.runner import load_checkpoint
from torch import nn

from mmmoca.compiled_ops import MissingOpsError, check_compiled_ops
from mmmoca.evaluation.report import write_whole


def parse_args() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description='Draw what a detector finds')
    parser.add_argument('config', help='the config that it was trained by')
    parser.add_argument('checkpoint', help='the checkpoint file')
    parser.add_argument('images', nargs='+', type=Path, help='image files')
    parser.add_argument(
        '--out',
        type=Path,
        default=Path('detections'),
        help='folder for the pictures, which keep their names (detections)',
    )
    parser.add_argument(
        '--score-thr',
        type=float,
        default=0.3,
        help='draw what has at least this score (0.3)',
    )
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=DictAction,
        default={},
        metavar='KEY=VALUE',
        help='settings that override those of the config',
    )
    args = parser.parse_args()
    names = [path.name for path in args.images]
    if len(set(names)) < len(names):
        parser.error('two images have the same name: draw them one by one')
    for path in args.images:
        if not path.is_file():
            parser.error(f'there is no image {path}')
        if path.resolve().parent == args.out.resolve():
            parser.error(f'--out {args.out} would replace {path}')
    return parser, args


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


def main() -> None:
    """Draw the pictures."""
    parser, args = parse_args()
    try:
        check_compiled_ops()
    except MissingOpsError as error:
        parser.error(str(error))
    cfg = Config.fromfile(args.config)
    cfg.merge_from_dict(args.cfg_options)
    model = load_model(cfg, args.checkpoint)
    pictures = draw(model, args.images, args.score_thr)
    for path, picture in zip(args.images, pictures):
        target = args.out / path.name
        write_whole(target, partial(mmcv.imwrite, picture[..., ::-1]))
        print(target)


if __name__ == '__main__':
    main()
