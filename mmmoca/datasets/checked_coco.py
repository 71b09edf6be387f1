# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""mmdet's COCO dataset with checks; importing this needs mmdet."""

from collections.abc import Sequence

from mmdet.datasets import CocoDataset
from mmdet.datasets.api_wrappers import COCO

from .coco_checks import (
    check_annotations,
    check_classes,
    check_images,
    check_masks,
)

__all__ = ['CheckedCOCO', 'CheckedCocoDataset']


class CheckedCOCO(COCO):
    """mmdet's reader of annotations, with checks of their content.

    Args:
        path (str): Path of the annotation file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)

    def createIndex(self) -> None:
        """Check the annotations before they are indexed."""
        check_annotations(self.dataset, self.path)
        super().createIndex()

    def get_cat_ids(self, cat_names: Sequence[str] = ()) -> list[int]:
        """Ids of the classes, in their order."""
        check_classes(self.dataset, self.path, cat_names)
        return super().get_cat_ids(cat_names=cat_names)


class CheckedCocoDataset(CocoDataset):
    """See :func:`mmmoca.datasets.coco`."""

    COCOAPI = CheckedCOCO

    def load_data_list(self) -> list[dict]:
        """Load the annotations; check images and masks."""
        data = super().load_data_list()
        if self.backend_args is None:
            check_images((info['img_path'] for info in data), self.ann_file)
        if not self.test_mode and any(
            getattr(transform, 'with_mask', False)
            for transform in self.pipeline.transforms
        ):
            check_masks(data, self.ann_file)
        return data

    def filter_data(self) -> list[dict]:
        """Filter the images; check that any are left."""
        left = super().filter_data()
        if not left:
            raise ValueError(
                f'{self.ann_file} leaves no image to work on: '
                f'{len(self.data_list)} images, less those without objects '
                'and those that are too small, by '
                f'filter_cfg={dict(self.filter_cfg or {})}'
            )
        return left
