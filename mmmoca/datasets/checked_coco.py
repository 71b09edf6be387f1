# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""mmdet's COCO dataset with checks; importing this needs mmdet."""

import os
from collections.abc import Sequence

from mmdet.datasets import CocoDataset
from mmdet.datasets.api_wrappers import COCO

from mmmoca.files import outside
from mmmoca.messages import listed, printable

_REQUIRED = dict(
    images=('id', 'file_name', 'height', 'width'),
    annotations=('id', 'image_id', 'category_id', 'bbox', 'area'),
    categories=('id', 'name'),
)


class CheckedCOCO(COCO):
    """mmdet's reader of annotations, with checks of their content.

    Args:
        path (str): Path of the annotation file.

    Raises:
        ValueError: If a list or a key of COCO's format is missing.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)

    def createIndex(self) -> None:
        """Check the annotations before they are indexed."""
        for name, keys in _REQUIRED.items():
            entries = self.dataset.get(name, [{}])
            if not all(key in entry for entry in entries for key in keys):
                raise ValueError(
                    f'{self.path} is no annotation file of COCO: it needs '
                    f'a list {name!r} whose entries have {", ".join(keys)}'
                )
        super().createIndex()

    def get_cat_ids(self, cat_names: Sequence[str] = ()) -> list[int]:
        """Ids of the classes, in their order.

        Args:
            cat_names (Sequence[str]): Classes of the config.

        Raises:
            ValueError: If a class is no category, or the orders differ.
        """
        known = [category['name'] for category in self.dataset['categories']]
        if [name for name in known if name in cat_names] != list(cat_names):
            raise ValueError(
                f'{self.path} has the categories {listed(known, 100)}, which '
                f'the classes {listed(cat_names, 3)} do not match. Labels '
                'follow the order of the file: write metainfo=dict('
                'classes=...) of the dataset with all of its categories or '
                'some, in this order'
            )
        return super().get_cat_ids(cat_names=cat_names)


class CheckedCocoDataset(CocoDataset):
    """See :func:`mmmoca.datasets.coco`."""

    COCOAPI = CheckedCOCO

    def load_data_list(self) -> list[dict]:
        """Load the annotations; check images and masks."""
        data = super().load_data_list()
        if self.backend_args is None:
            self._check_images({info['img_path'] for info in data})
        wants_masks = any(
            getattr(transform, 'with_mask', False)
            for transform in self.pipeline.transforms
        )
        for info in data if wants_masks else ():
            if any('mask' not in instance for instance in info['instances']):
                raise ValueError(
                    f'{self.ann_file} has an object without segmentation, on '
                    f'the image {printable(info["img_path"])}: add it, or '
                    'leave out with_mask=True of LoadAnnotations, for a '
                    'detector without masks'
                )
        return data

    def parse_data_info(self, raw_data_info: dict) -> dict:
        """Check an image's objects for what the evaluation reads."""
        objects = raw_data_info['raw_ann_info']
        if self.test_mode and any('iscrowd' not in one for one in objects):
            raise ValueError(
                f"{self.ann_file} has an object without iscrowd, which COCO's "
                'evaluation reads: write "iscrowd": 0'
            )
        return super().parse_data_info(raw_data_info)

    def filter_data(self) -> list[dict]:
        """Leave out images without objects, not all of them."""
        data = super().filter_data()
        if self.data_list and not data:
            raise ValueError(
                f'filter_cfg={self.filter_cfg} leaves none of the '
                f'{len(self.data_list)} images of {self.ann_file}: they have '
                'no object of the classes, or are too small'
            )
        return data

    def _check_images(self, paths: set[str]) -> None:
        """Check that images exist, by one listing of each folder."""
        folders = filter(os.path.isdir, set(map(os.path.dirname, paths)))
        there = {entry.path for f in folders for entry in os.scandir(f)}
        beyond = outside(self.data_prefix.get('img') or '', paths)
        if missing := sorted(paths - there | set(beyond)):
            raise FileNotFoundError(
                f'{len(missing)} of the {len(paths)} images of '
                f'{self.ann_file} are missing or not below data_prefix.img '
                f'({listed(missing, 3)}): correct data_root and '
                'data_prefix.img of the dataset, or the file'
            )
