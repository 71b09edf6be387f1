# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Good and bad annotation files, before and in the pipeline."""

import json
import shutil

import pytest
from mmengine.registry import DATASETS

from .conftest import CLASSES, shapes_config

pytestmark = pytest.mark.ops


def unchanged(content):
    """Leave the annotations as they are."""


def first_whole(content):
    """The first annotation with a polygon."""
    return next(
        annotation
        for annotation in content['annotations']
        if isinstance(annotation['segmentation'], list)
    )


def test_empty_images_count_in_validation_only(shapes):
    cfg = shapes_config(shapes)
    content = json.loads((shapes / 'annotations/train.json').read_text())
    used = {annotation['image_id'] for annotation in content['annotations']}
    assert len(used) == len(content['images']) - 1
    assert len(DATASETS.build(cfg.train_dataloader.dataset)) == len(used)
    dataset = DATASETS.build(cfg.val_dataloader.dataset)
    assert len(dataset) == len(content['images'])


def wrong(message, change=unchanged, **options):
    return pytest.param(change, message, options, id=message[:20])


@pytest.mark.parametrize(
    'change, message, options',
    [
        wrong(
            'annotations.*area',
            lambda content: first_whole(content).pop('area'),
        ),
        wrong(
            "no annotation file.*no list 'categories'",
            lambda content: content.pop('categories'),
        ),
        wrong(
            r'object without segmentation.*\.jpg.*with_mask',
            lambda content: first_whole(content).pop('segmentation'),
        ),
        wrong(
            'leaves no image.*12 images.*min_size',
            lambda content: content['annotations'].clear(),
        ),
        wrong(
            r'1 images of .* lead out of .*\.\./\.\./x.jpg',
            lambda content: content['images'][0].update(
                file_name='../../x.jpg'
            ),
        ),
        wrong(
            'no category cross,.*order: circle, plus, square, triangle',
            lambda content: content['categories'][1].update(name='plus'),
        ),
        wrong(
            'in another order.*order: triangle, square, cross, circle',
            lambda content: content['categories'].reverse(),
        ),
        # COCO's classes on another file.
        wrong('no category person, bicycle, car and 77', metainfo=None),
    ],
)
def test_annotation_files(altered, change, message, options):
    with pytest.raises(ValueError, match=message):
        DATASETS.build(altered(change, **options))


def test_some_of_the_classes(altered):
    """In the file's order they are allowed, the others are left out."""
    chosen = (CLASSES[0], CLASSES[2])
    cfg = altered(unchanged, metainfo=dict(classes=chosen))
    dataset = DATASETS.build(cfg)
    assert dataset.cat_ids == [1, 3]
    assert {
        instance['bbox_label']
        for index in range(len(dataset))
        for instance in dataset.get_data_info(index)['instances']
    } == {0, 1}


def test_missing_images(shapes, tmp_path):
    copy = shutil.copytree(shapes, tmp_path / 'shapes')
    for number in (1, 4):
        (copy / 'train' / f'{number:06d}.jpg').unlink()
    dataset = shapes_config(copy).val_dataloader.dataset
    message = r'2 of the 12 images of .*train\.json are missing \(.*000001'
    with pytest.raises(FileNotFoundError, match=message):
        DATASETS.build(dataset)
    dataset.data_prefix.img = 'trian/'
    with pytest.raises(FileNotFoundError, match='12 of the 12.*data_prefix'):
        DATASETS.build(dataset)
