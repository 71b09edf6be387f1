# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The drawn COCO set against its own images."""

from pathlib import Path

import cv2
import numpy as np
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

from ..helpers.tools import contents, load_tool


def make(*arguments, **options):
    tool = load_tool('drawn_sets/make_shapes_coco')
    return tool.make_shapes(*arguments, **options)


def test_annotations_fit_the_images(tmp_path):
    out = tmp_path / 'set'
    assert make(out, train=30, val=10, size=96)
    kinds, empty = set(), 0
    for split, count in (('train', 30), ('val', 10)):
        coco = COCO(out / 'annotations' / f'{split}.json')
        assert len(coco.imgs) == len(list((out / split).iterdir())) == count
        names = ' '.join(c['name'] for c in coco.cats.values())
        assert names == 'circle cross square triangle'
        for image in coco.imgs.values():
            pixels = cv2.imread(str(out / split / image['file_name']))
            size = (image['height'], image['width'])
            assert pixels.shape == (*size, 3) and max(size) == 96
            annotations = coco.imgToAnns[image['id']]
            empty += not annotations
            together, classes = np.zeros(size, int), np.zeros(size, int)
            for annotation in annotations:
                shown = annotation['segmentation']
                kinds.add(
                    'polygon'
                    if isinstance(shown, list)
                    else (type(shown['counts']), annotation['iscrowd'])
                )
                mask = coco.annToMask(annotation)
                assert mask.sum() == annotation['area'] > 0
                rle = coco_mask.encode(np.asfortranarray(mask))
                box = coco_mask.toBbox(rle).tolist()
                assert box == annotation['bbox']
                together += mask
                classes += mask * annotation['category_id']
                if not annotation['iscrowd']:
                    # One colour but for the noise and JPEG.
                    core = cv2.erode(mask, np.ones((5, 5), np.uint8)) > 0
                    assert (pixels[core].std(0) < 25).all()
            assert together.max() <= 1
            name = Path(image['file_name']).stem
            path = out / 'masks' / split / f'{name}.png'
            assert (cv2.imread(str(path), -1) == classes).all()
    assert kinds == {'polygon', (str, 0), (list, 0), (list, 1)}
    assert empty == 4


def test_same_arguments_same_bytes(tmp_path):
    for name, seed in (('a', 3), ('b', 3), ('c', 4)):
        make(tmp_path / name, train=4, val=2, size=64, seed=seed)
    first, again, other = (contents(tmp_path / name) for name in 'abc')
    assert first == again != other
