# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Good and bad annotation files, before and in the pipeline."""

import json
import shutil

import pytest
from mmengine.registry import DATASETS

from .conftest import CLASSES, shapes_config

pytestmark = pytest.mark.ops


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


@pytest.mark.parametrize(
    'word, change',
    [
        ('area', lambda content: first_whole(content).pop('area')),
        ('categories', lambda content: content.pop('categories')),
        (
            'segmentation.*with_mask',
            lambda content: first_whole(content).pop('segmentation'),
        ),
        (
            'triangle, square, cross, circle.*order',
            lambda content: content['categories'].reverse(),
        ),
        ('leaves none', lambda content: content.update(annotations=[])),
    ],
)
def test_annotation_files(altered, word, change):
    with pytest.raises(ValueError, match=word):
        DATASETS.build(altered(change))


@pytest.mark.parametrize('key', ['segmentation', 'iscrowd'])
def test_what_the_evaluation_reads(altered, key):
    dataset = altered(lambda content: first_whole(content).pop(key))
    with pytest.raises(ValueError, match=key):
        DATASETS.build(dict(dataset, test_mode=True))


def test_some_of_the_classes(shapes):
    """In the file's order they are allowed, the others are left out."""
    cfg = shapes_config(shapes).train_dataloader.dataset
    cfg.metainfo = dict(classes=(CLASSES[0], CLASSES[2]))
    dataset = DATASETS.build(cfg)
    assert dataset.cat_ids == [1, 3]
    assert {
        instance['bbox_label']
        for index in range(len(dataset))
        for instance in dataset.get_data_info(index)['instances']
    } == {0, 1}


def test_missing_images(shapes, altered, tmp_path):
    there = dict(file_name='../val/000000.jpg')
    beyond = altered(lambda content: content['images'][0].update(there))
    with pytest.raises(FileNotFoundError, match=r'1 of the 12 .*\.\./val'):
        DATASETS.build(beyond)
    copy = shutil.copytree(shapes, tmp_path / 'shapes')
    for number in (1, 4):
        (copy / 'train' / f'{number:06d}.jpg').unlink()
    dataset = shapes_config(copy).val_dataloader.dataset
    message = r'2 of the 12 images of .*train\.json .*000001'
    with pytest.raises(FileNotFoundError, match=message):
        DATASETS.build(dataset)
