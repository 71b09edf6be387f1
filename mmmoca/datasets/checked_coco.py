# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""mmdet's COCO dataset with checks; importing this needs mmdet."""

import json
import logging
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mmcv.transforms import LoadImageFromFile
from mmdet.datasets import CocoDataset
from mmdet.datasets.api_wrappers import COCO
from mmengine.logging import print_log

from mmmoca.files import outside
from mmmoca.messages import listed, printable

from .coco_entries import check_entries
from .image_set import judge_images
from .looks import check_images

LOOKS = 200  # images that are decoded before a run


class CheckedCOCO(COCO):
    """mmdet's reader of annotations, with checks of their content.

    Args:
        path (str): Path of the annotation file.
        masks (bool): Whether masks are loaded.
        evaluated (bool): Whether it is for an evaluation. A list of images
            without annotations is accepted then: predictions may be all that
            is wanted.

    Raises:
        ValueError: If it is no JSON file. See also :func:`check_entries`.
    """

    def __init__(self, path: str, masks: bool, evaluated: bool) -> None:
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
                f'the classes {listed(cat_names, 3)} do not match: write all '
                'or some of them, in this order, as metainfo.classes'
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
        self._masks, self._taken, self._left_out = masks, 0, []
        data = super().load_data_list()
        if self._left_out:
            left_out = (
                f'{len(self._left_out)} objects of {self.ann_file} are left '
                f'out (id {listed(self._left_out, 3)}), {self._taken} are '
                'left: mmdet takes none that is of no class, ignored, of no '
                'area, outside of its image, of less than a pixel (as shares '
                'of 1 are) or, for masks, without a polygon of three points'
            )
            if not self._taken:
                raise ValueError(left_out)
            print_log(left_out, 'current', logging.WARNING)
        self._check_images({info['img_path'] for info in data})
        return data

    def full_init(self) -> None:
        """Load the annotations, and check sizes of images."""
        judge_images(self)
        steps = self.pipeline.transforms
        super().full_init()
        if check_size not in steps:
            check_images(self, LOOKS, check_size)
            # Each image, where it is decoded.
            for load in steps[:]:
                if isinstance(load, LoadImageFromFile):
                    steps.insert(steps.index(load) + 1, check_size)

    def parse_data_info(self, raw_data_info: dict) -> dict:
        """Parse an image's objects; count those that are left out."""
        for one in raw_data_info['raw_ann_info']:
            alone = dict(raw_data_info, raw_ann_info=[one])
            mask = self._masks and one.get('segmentation')
            # mmdet leaves out the object where it loads the mask.
            drawn = not isinstance(mask, list) or any(
                len(part) > 5 and len(part) % 2 == 0 for part in mask
            )
            if drawn and super().parse_data_info(alone)['instances']:
                self._taken += 1
            else:
                self._left_out.append(one['id'])
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
        left = f'{len(data)} of {len(self.data_list)} images'
        print_log(f'filter_cfg leaves {left} of {self.ann_file}', 'current')
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
                f'({listed(missing, 3)}): correct it, data_root or the file'
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
    stated = results['height'], results['width']
    if found != stated:
        raise ValueError(
            f'{printable(results["img_path"])} has the height and width '
            f'{found}, as its EXIF orientation turns it, not {stated} as its '
            'entry says: correct the entry and its objects'
        )
    return results
