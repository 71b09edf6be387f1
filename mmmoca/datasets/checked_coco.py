# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""mmdet's COCO dataset with checks; this module imports mmdet."""

import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mmdet.datasets import CocoDataset
from mmdet.datasets.api_wrappers import COCO
from mmengine.logging import print_log

from mmmoca.files import outside
from mmmoca.messages import listed, printable, warn

from .coco_entries import check_entries
from .look.boxes import BoxFacts


class CheckedCOCO(COCO):
    """mmdet's reader of annotations, with checks of their content.

    Args:
        path (str): Path of the annotation file.
        masks (bool): Whether masks are loaded.
        evaluated (bool): Whether the data set is in ``test_mode``. The file
            may then lack annotations, because the user may want only
            predictions.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not a JSON file. See also :func:`check_entries`.
    """

    def __init__(self, path: str, masks: bool, evaluated: bool) -> None:
        super().__init__()
        self.path = path
        try:
            self.dataset = json.loads(Path(path).read_bytes())
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f'there is no annotation file {printable(path)}: correct '
                'ann_file or data_root of the data set'
            ) from error
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
        """Return the category ids of the classes, in the same order.

        Args:
            cat_names (Sequence[str]): Names of the classes in the config.

        Raises:
            ValueError: If a class is not among the categories of the file, or
                the classes and the categories differ in order.
        """
        known = [category['name'] for category in self.dataset['categories']]
        if [name for name in known if name in cat_names] != list(cat_names):
            texts = all(isinstance(name, str) for name in cat_names)
            show = str if texts else repr  # repr tells 1 from '1'
            raise ValueError(
                f'{self.path} has the categories '
                f'{listed(map(show, known), 100)}. The classes '
                f'{listed(map(show, cat_names), 3)} do not match them: list '
                'some or all of the categories, in this order, as classes=A,B '
                '(metainfo.classes of each data set)'
            )
        return super().get_cat_ids(cat_names=cat_names)


class CheckedCocoDataset(CocoDataset):
    """mmdet's ``CocoDataset`` with the checks of :func:`mmmoca.datasets.coco`.

    Attributes:
        boxes (BoxFacts): Facts about the objects of the file.
    """

    def load_data_list(self) -> list[dict]:
        """Load the annotations, and warn about objects that stand out."""
        steps = self.pipeline.transforms
        masks = any(getattr(step, 'with_mask', False) for step in steps)
        self.boxes = BoxFacts(self.metainfo['classes'], masks)
        self.COCOAPI = partial(
            CheckedCOCO, masks=masks, evaluated=self.test_mode
        )
        data = super().load_data_list()
        self.boxes.forget_objects()
        found = self.boxes.totals()
        odd = self.boxes.odd(self.ann_file, self.test_mode)
        if self.boxes.left_out and not found:
            raise ValueError(odd[0])
        if found and found['crowds'] == found['objects']:
            raise ValueError(
                f'all {found["objects"]} objects of {self.ann_file} are '
                'crowds (iscrowd=1), which neither training nor evaluation '
                'uses'
            )
        for line in odd:
            warn(line)
        self._check_images({info['img_path'] for info in data})
        return data

    def parse_data_info(self, raw_data_info: dict) -> dict:
        """Count all objects of an image, and parse those that mmdet uses."""
        image = raw_data_info['raw_img_info']
        names, size = (
            self.metainfo['classes'],
            (image['height'], image['width']),
        )
        taken = []
        for one in raw_data_info['raw_ann_info']:
            label = self.cat2label.get(one['category_id'])
            name = None if label is None else names[label]
            if self.boxes.take(one, size, name):
                taken.append(one)
        return super().parse_data_info(dict(raw_data_info, raw_ann_info=taken))

    def filter_data(self) -> list[dict]:
        """Apply ``filter_cfg``, and raise if it leaves no image."""
        data = super().filter_data()
        if self.data_list and not data:
            raise ValueError(
                f'filter_cfg={self.filter_cfg} leaves none of the '
                f'{len(self.data_list)} images of {self.ann_file}: they have '
                'no object of the classes, or are too small'
            )
        left = f'{len(data)} of {len(self.data_list)} images'
        print_log(f'filter_cfg leaves {left} of {self.ann_file}', 'current')
        return data

    def _check_images(self, paths: set[str]) -> None:
        """Check that the images exist; list each local folder only once."""
        there = paths
        if self.backend_args is None:
            folders = filter(os.path.isdir, set(map(os.path.dirname, paths)))
            there = {entry.path for f in folders for entry in os.scandir(f)}
        beyond = outside(self.data_prefix.get('img') or '', paths)
        if missing := sorted(paths - there | set(beyond)):
            raise FileNotFoundError(
                f'{len(missing)} of the {len(paths)} images of '
                f'{self.ann_file} are missing or outside data_prefix.img '
                f'({listed(missing, 3)}): correct data_prefix.img, data_root '
                'or the annotation file'
            )
