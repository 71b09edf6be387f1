# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import os
import re
from collections.abc import Iterable
from pathlib import Path

from mmengine.config import Config
from mmengine.dataset import BaseDataset

from mmmoca.registry import DATASETS


# A function, because a class would have to inherit from mmdet's: whoever
# pretrains needs neither mmdet nor its compiled operators.
@DATASETS.register_module(name='CheckedCocoDataset')
def coco(**dataset) -> BaseDataset:
    """Build mmdet's ``CocoDataset`` and check its files.

    Registered as ``mmmoca.CheckedCocoDataset``. mmdet alone ignores unknown
    categories, numbers the others in the file's order even if the classes have
    another, and notices a missing image or mask only when training reaches it.

    Args:
        **dataset: Arguments of ``CocoDataset``.

    Returns:
        BaseDataset: The dataset, of a subclass of ``CocoDataset``.

    Raises:
        ValueError: If the file is no annotation file of COCO's format, or has
            ids, references, boxes or masks that make no sense; if no object
            is left, as others are logged and left out; if its categories are
            not the classes of ``metainfo``; if an annotation has no mask
            although ``LoadAnnotations`` loads masks; or if images cannot be
            read or have another size than the file says. Each image's size
            is compared again where it is decoded.
        FileNotFoundError: If there are images missing.
    """
    from .checked_coco import CheckedCocoDataset

    return CheckedCocoDataset(**dataset)


def check_annotations(cfg: Config, stages: Iterable[str]) -> None:
    """Refuse to evaluate by a list of images, without annotations.

    COCO's evaluation would give -1 for each number.

    Args:
        cfg (Config): Any config.
        stages (Iterable[str]): 'train', 'val' or 'test', what is run.

    Raises:
        ValueError: If a local file of an evaluator has no annotations.
    """
    some = re.compile(rb'"annotations"\s*:\s*\[\s*[^\s\]]')
    for stage in stages:
        parts = cfg.get(f'{stage}_evaluator') or []
        for part in [parts] if isinstance(parts, dict) else parts:
            file = part.get('ann_file') or ''
            if part.get('format_only') or not os.path.isfile(file):
                continue
            if some.search(Path(file).read_bytes()) is None:
                raise ValueError(
                    f'{file} has no annotations to evaluate by: write '
                    f'{stage}_evaluator.format_only=True for predictions alone'
                )
