# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The inferencers of mmdet and mmseg, for checkpoints that fit as a whole."""

from mmengine.config import Config
from mmengine.infer import BaseInferencer
from mmengine.registry import DATASETS
from mmengine.runner import load_checkpoint

# Registers the reader that MMEngine takes.
import mmmoca.checkpoints  # noqa: F401

__all__ = ['build_inferencer']


def build_inferencer(
    kind: type[BaseInferencer], cfg: Config, checkpoint: str, visualizer: str
) -> BaseInferencer:
    """Build an inferencer that has all weights of a checkpoint.

    The inferencers load what matches and only log the rest, and name the
    classes of COCO or Cityscapes where a checkpoint names none.

    Args:
        kind (type[BaseInferencer]): mmdet's ``DetInferencer`` or mmseg's
            ``MMSegInferencer``.
        cfg (Config): The config that the model was trained by.
        checkpoint (str): The checkpoint file.
        visualizer (str): Type of the visualiser. It writes no files.

    Returns:
        BaseInferencer: Ready to be called.

    Raises:
        RuntimeError: If the checkpoint is of another model.
    """
    # Not the config's, whose backends want a work dir.
    cfg.visualizer = dict(type=visualizer)
    inferencer = kind(cfg, checkpoint, show_progress=False)
    loaded = load_checkpoint(inferencer.model, checkpoint, strict=True)
    if 'dataset_meta' not in loaded.get('meta', {}):
        source = dict(cfg.test_dataloader.dataset, lazy_init=True)
        known = DATASETS.build(source).metainfo
        meta = {key: known.get(key) for key in ('classes', 'palette')}
        inferencer.model.dataset_meta = meta
        inferencer.visualizer.dataset_meta = meta
    return inferencer
