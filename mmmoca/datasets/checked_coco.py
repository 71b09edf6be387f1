# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""mmdet's COCO dataset with checks; importing this needs mmdet."""

import copy
import json
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from mmdet.datasets import CocoDataset
from mmdet.datasets.api_wrappers import COCO
from mmengine.logging import print_log

from mmmoca.files import outside
from mmmoca.messages import listed, printable

from .coco_entries import by_problem, check_entries, counted, why_left_out

LOOKS = 200  # images that are decoded before a run


class CheckedCOCO(COCO):
    """mmdet's reader of annotations, with checks of their content.

    Args:
        path (str): Path of the annotation file.
        masks (bool): Whether masks are loaded. Defaults to False.
        evaluated (bool): Whether it is for an evaluation. A list of images
            without annotations is accepted then: predictions may be all that
            is wanted. Defaults to False.

    Raises:
        ValueError: If it is no JSON file. See also :func:`check_entries`.
    """

    def __init__(
        self, path: str, masks: bool = False, evaluated: bool = False
    ) -> None:
        super().__init__()
        self.path = path
        try:
            self.dataset = json.loads(Path(path).read_bytes())
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f'cannot read the annotation file {printable(path)}: {error}'
            ) from error
        if evaluated and isinstance(self.dataset, dict):
            self.dataset.setdefault('annotations', [])
        check_entries(path, self.dataset, masks, evaluated)
        self.createIndex()
        self.img_ann_map, self.cat_img_map = self.imgToAnns, self.catToImgs

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

    def load_data_list(self) -> list[dict]:
        """Load the annotations; check objects, images and masks."""
        steps = self.pipeline.transforms
        masks = any(getattr(step, 'with_mask', False) for step in steps)
        self.COCOAPI = partial(
            CheckedCOCO, masks=masks, evaluated=self.test_mode
        )
        self._objects, self._left_out, self._masks = 0, [], masks
        data = super().load_data_list()
        left = self._objects - len(self._left_out)
        if self._left_out:
            found = (
                f'{left} of the {self._objects} objects of {self.ann_file} '
                f'are left; without {counted(by_problem(self._left_out))}'
            )
            if not left:
                raise ValueError(found)
            print_log(found, 'current', logging.WARNING)
        self._check_images({info['img_path'] for info in data})
        if maskless := masks and [
            info['img_path']
            for info in data
            if any('mask' not in instance for instance in info['instances'])
        ]:
            raise ValueError(
                f'{self.ann_file} has objects without segmentation, on '
                f'{listed(maskless, 3)}: add it, or leave out with_mask=True '
                'of LoadAnnotations, for a detector without masks'
            )
        names = [type(step).__name__ for step in steps]
        loads = [i for i, n in enumerate(names) if n.startswith('LoadImage')]
        if loads and check_size not in steps:
            steps.insert(loads[0] + 1, check_size)
            self._look_at_images(copy.deepcopy(steps[loads[0]]), data)
        return data

    def parse_data_info(self, raw_data_info: dict) -> dict:
        """Parse an image's objects; count those that are left out."""
        image, objects = (
            raw_data_info[f'raw_{name}_info'] for name in ('img', 'ann')
        )
        self._objects += len(objects)
        for one in objects:
            reason = why_left_out(one, image, self.cat2label, self._masks)
            if reason:
                self._left_out.append((f'objects {reason}', one['id']))
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
        if len(data) < len(self.data_list):
            print_log(
                f'filter_cfg={self.filter_cfg} leaves {len(data)} of the '
                f'{len(self.data_list)} images of {self.ann_file}',
                'current',
            )
        return data

    def _check_images(self, paths: set[str]) -> None:
        """Check that images exist, by one listing of each local folder."""
        there = paths
        if self.backend_args is None:
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

    def _look_at_images(self, load: Callable, data: list[dict]) -> None:
        """Check that some images, evenly spaced, are those of the file."""
        number = min(LOOKS if self.backend_args is None else 20, len(data))
        wrong = []
        for index in np.linspace(0, len(data) - 1, number).astype(int):
            try:
                if (loaded := load(dict(data[index]))) is not None:
                    check_size(loaded)
            except Exception as error:  # each decoder has errors of its own
                wrong.append(f'{data[index]["img_path"]}: {error}')
        if wrong:
            raise ValueError(
                f'{len(wrong)} of {number} images that were tried cannot be '
                f'read or do not fit {self.ann_file}: {listed(wrong, 2)}'
            )


def check_size(results: dict) -> dict:
    """Check that an image has the size that the annotations say.

    Args:
        results (dict): With ``img`` as decoded, (H, W, ...), and ``height``
            and ``width`` of the annotation file.

    Returns:
        dict: The same.

    Raises:
        ValueError: If the sizes differ.
    """
    found = results['img'].shape[:2]
    said = results['height'], results['width']
    if found != said:
        raise ValueError(
            f'{printable(results["img_path"])} has the (height, width) '
            f'{found}, as its EXIF orientation turns it, but its entry says '
            f'{said}: correct the entry and its objects'
        )
    return results
