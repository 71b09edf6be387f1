# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
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
            is left, as others are logged and left out, or only crowds; if
            its categories are not the classes of ``metainfo``; or if an
            annotation has no mask although ``LoadAnnotations`` loads masks.
        FileNotFoundError: If there are images missing.
    """
    from .checked_coco import CheckedCocoDataset

    return CheckedCocoDataset(**dataset)
