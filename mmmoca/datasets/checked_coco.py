# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""mmdet's COCO dataset with checks; importing this needs mmdet."""

import os
from collections.abc import Sequence

from mmdet.datasets import CocoDataset
from mmdet.datasets.api_wrappers import COCO

from mmmoca.files import outside
from mmmoca.messages import listed, printable

__all__ = ['CheckedCOCO', 'CheckedCocoDataset']

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
            if name not in self.dataset:
                raise ValueError(
                    f'{self.path} is no annotation file in the format of '
                    f'COCO: it has no list {name!r}'
                )
            for entry in self.dataset[name]:
                if absent := [key for key in keys if key not in entry]:
                    raise ValueError(
                        f'{self.path}: an entry of {name!r} has no '
                        f'{absent[0]!r}: {printable(str(entry)[:200])}'
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
        missing = [name for name in cat_names if name not in known]
        ordered = [name for name in known if name in cat_names]
        if missing or ordered != list(cat_names):
            problem = (
                f'has no category {listed(missing, 3)}'
                if missing
                else 'has the categories in another order'
            )
            raise ValueError(
                f'{self.path} {problem}, and labels follow its order: write '
                'metainfo=dict(classes=...) of the dataset as the categories '
                'of the file, or some of them in this order: '
                f'{listed(known, 100)}'
            )
        return super().get_cat_ids(cat_names=cat_names)


class CheckedCocoDataset(CocoDataset):
    """See :func:`mmmoca.datasets.coco`."""

    COCOAPI = CheckedCOCO

    def load_data_list(self) -> list[dict]:
        """Load the annotations; check images and masks."""
        data = super().load_data_list()
        if self.backend_args is None:
            self._check_images(data)
        if not self.test_mode and any(
            getattr(transform, 'with_mask', False)
            for transform in self.pipeline.transforms
        ):
            self._check_masks(data)
        return data

    def _check_images(self, data: list[dict]) -> None:
        """Check that images exist, by one listing of each folder."""
        root = self.data_prefix.get('img') or ''
        beyond = outside(root, [info['img_path'] for info in data])
        if beyond:
            raise ValueError(
                f'{len(beyond)} images of {self.ann_file} lead out of {root} '
                f'({listed(beyond, 3)}): correct their file_name, or '
                'data_prefix.img of the dataset'
            )
        paths = {info['img_path'] for info in data}
        # One listing a folder: a look at each file takes long over a network.
        folders = filter(os.path.isdir, set(map(os.path.dirname, paths)))
        there = {entry.path for f in folders for entry in os.scandir(f)}
        if missing := sorted(paths - there):
            raise FileNotFoundError(
                f'{len(missing)} of the {len(paths)} images of '
                f'{self.ann_file} are missing ({listed(missing, 3)}): '
                'correct data_root and data_prefix.img of the dataset, or '
                'the file'
            )

    def _check_masks(self, data: list[dict]) -> None:
        """Check that every object has a mask."""
        for info in data:
            if any('mask' not in instance for instance in info['instances']):
                raise ValueError(
                    f'{self.ann_file} has an object without segmentation, on '
                    f'the image {printable(info["img_path"])}: add it, or '
                    'leave out with_mask=True of LoadAnnotations and train a '
                    'detector without masks'
                )

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
