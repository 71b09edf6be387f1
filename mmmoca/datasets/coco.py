# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmengine.dataset import BaseDataset

from mmmoca.registry import DATASETS


# This is a function because a class would have to inherit from mmdet's, and
# pretraining must work without mmdet and its compiled operators.
@DATASETS.register_module(name='CheckedCocoDataset')
def coco(**dataset) -> BaseDataset:
    """Build mmdet's ``CocoDataset`` and check its files.

    Registered as ``mmmoca.CheckedCocoDataset``. Without these checks, mmdet
    ignores classes that the file does not have, numbers the rest in the file's
    order even if ``metainfo`` has another order, and notices a missing image
    or mask only when training reaches it.

    Args:
        **dataset: Arguments of ``CocoDataset``.

    Returns:
        BaseDataset: An instance of a subclass of ``CocoDataset``.

    Raises:
        ValueError: If the file is not an annotation file in COCO's format, or
            has ids, references, boxes or masks that make no sense; if all
            objects are unusable or crowds; if ``filter_cfg`` leaves no image;
            if the classes of ``metainfo`` are not all among the categories,
            or are in another order; or if an annotation has no mask although
            ``LoadAnnotations`` loads masks. If only some objects are unusable,
            they are left out with a warning.
        FileNotFoundError: If images are missing or outside ``data_prefix``.
    """
    from .checked_coco import CheckedCocoDataset

    return CheckedCocoDataset(**dataset)
