# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Good and bad annotation files, before a run and in the pipeline."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from mmengine.registry import DATASETS
from PIL import Image
from pycocotools import mask

from mmmoca.datasets.image_set import judge_images
from mmmoca.datasets.look import look_at
from mmmoca.datasets.look.boxes import BoxFacts, box_facts
from mmmoca.engine.config import read_run
from mmmoca.engine.hooks import LookHook
from mmmoca.engine.runners import ConsoleRunner
from mmmoca.messages import DataWarning

from ..helpers.shapes import CLASSES, CONFIGS, shapes_config

pytestmark = pytest.mark.ops


def first_whole(content):
    """Return the first annotation with a polygon."""
    return next(
        annotation
        for annotation in content['annotations']
        if isinstance(annotation['segmentation'], list)
    )


def first(entries='annotations', /, **values):
    """Return a function that changes the first entry of a list."""
    return lambda content: content[entries][0].update(values)


def rle(counts):
    """Return a function that sets the first mask, which has 96 x 86 pixels."""
    counts = counts.decode() if isinstance(counts, bytes) else counts
    return first(segmentation=dict(size=[96, 86], counts=counts))


def row_by_row(content):
    """Replace all masks by RLEs that run along rows instead of columns."""
    sizes = {i['id']: (i['height'], i['width']) for i in content['images']}
    for one in content['annotations']:
        height, width = sizes[one['image_id']]
        x, y, w, h = map(int, one['bbox'])
        mask = np.zeros((height, width), bool)
        mask[y : y + h, x : x + w] = True
        ends = np.flatnonzero(np.diff(mask.ravel(), prepend=False))  # rows
        counts = np.diff([0, *ends, mask.size]).tolist()
        one['segmentation'] = dict(size=[height, width], counts=counts)


def each(**values):
    """Return a function that changes all objects; callables get the object."""

    def change(content):
        for one in content['annotations']:
            for key, v in values.items():
                one[key] = v(one) if callable(v) else v

    return change


def test_empty_images_count_in_validation_only(shapes, altered):
    def empty_first(content):
        content['annotations'] = [
            one for one in content['annotations'] if one['image_id'] != 1
        ]

    dataset = altered(empty_first)
    assert len(DATASETS.build(dataset)) == 5
    validation = shapes_config(shapes).val_dataloader.dataset
    validation.ann_file = dataset.ann_file
    assert len(DATASETS.build(validation)) == 6


@pytest.mark.parametrize(
    'word, change',
    [
        ('categories', lambda content: content.pop('categories')),
        (
            'segmentation',
            lambda content: first_whole(content).pop('segmentation'),
        ),
        (
            'triangle',
            lambda content: content['categories'].reverse(),
        ),
        ('altered.json', lambda content: content.update(annotations=[])),
        ('images', first('images', id=2)),
        ('file_name', first('images', file_name='000001.jpg')),
        ('height', first('images', height='96')),
        ('image_id', first(image_id='1')),
        ('image_id', first(image_id=9999)),
        ('bbox', first(bbox=[0, 0, '9', 9])),
        ('category_id', each(category_id=lambda a: a['id'] + 90)),
        ('bbox', first(bbox=[0, 0, float('nan'), 9])),
        ('iscrowd', first(iscrowd='0')),
        ('segmentation', first(segmentation=[9, 9, 20, 9, 20, 20])),
        ('segmentation', first(segmentation=[[0.1, 0.1, 0.2, 0.1, 0.2, 0.2]])),
        ('RLE', first(segmentation=dict(size=[9, 9], counts=[81]))),
        ('RLE', rle([8255])),
        ('RLE', rle([8257])),
        ('RLE', rle([8256.0])),
        ('RLE', rle([-1, 8257])),
        ('RLE', rle('o')),
        ('RLE', rle(mask.encode(np.ones((95, 86), 'u1', 'F'))['counts'])),
        ('segmentation', first(segmentation=[[0, 0, 1e9, 0, 1e9, 1e9]])),
        ('altered.json', each(segmentation=lambda a: [a['bbox']])),
        ('crowds', each(iscrowd=1)),
        ('negative', each(bbox=lambda a: [9, 9, -a['bbox'][2], 9])),
    ],
)
def test_annotation_files(altered, word, change):
    with pytest.raises(ValueError, match=word):
        DATASETS.build(altered(change))


def test_boxes_alone(altered):
    """A detector without masks does not need them."""
    dataset = altered(each(segmentation=None))
    name = 'retinanet_moca-vit-b16_fpn_1x_own-coco.py'
    cfg = read_run(CONFIGS / name)
    for split in ('train', 'val'):
        dataset.pipeline = cfg[f'{split}_dataloader'].dataset.pipeline
        found = DATASETS.build(dataset)[0]['data_samples'].gt_instances
        assert len(found.bboxes) and 'masks' not in found


@pytest.mark.parametrize(
    'key, change',
    [
        ('segmentation', lambda c: first_whole(c).pop('segmentation')),
        ('iscrowd', lambda c: first_whole(c).pop('iscrowd')),
        ('id is 0', each(id=lambda one: one['id'] - 1)),
        (
            'three points',
            first(segmentation=[[1, 1, 9, 9], [0, 0, 9, 0, 9, 9]]),
        ),
    ],
)
def test_what_the_evaluation_reads(altered, key, change):
    with pytest.raises(ValueError, match=key):
        DATASETS.build(dict(altered(change), test_mode=True))


def test_objects_that_are_left_out_are_named(altered):
    """All objects that mmdet does not give to a detector are named."""
    bad = (
        dict(area=0),
        dict(bbox=[0, 0, 0.5, 9]),
        dict(bbox=[96, 0, 9, 9]),
        dict(ignore=1),
        dict(segmentation=[[1, 1, 9, 9]]),
    )
    objects = []

    def change(content):
        for one, values in zip(content['annotations'], bad):
            one.update(values)
        content['annotations'][len(bad)]['bbox'][0] = -1  # partly outside
        objects.extend(content['annotations'])

    with pytest.warns(DataWarning) as said:
        dataset = DATASETS.build(altered(change))
    found = sum(len(x['data_samples'].gt_instances) for x in dataset)
    whole = sum(not one['iscrowd'] for one in objects)
    assert found == whole - len(bad)
    left_out = dataset.boxes.left_out
    ids = [one['id'] for one in objects[: len(bad)]]
    assert sorted(sum(left_out.values(), [])) == ids
    assert dataset.boxes.totals()['objects'] == len(objects) - len(bad)
    assert str(ids[0]) in str(said[0].message)


@pytest.mark.parametrize(
    'word, change',
    [
        ('masks', each(bbox=lambda a: [side / 2 for side in a['bbox']])),
        ('masks', row_by_row),
        (CLASSES[0], each(iscrowd=lambda a: int(a['category_id'] == 1))),
    ],
)
def test_what_stands_out_of_boxes(altered, word, change):
    with pytest.warns(DataWarning, match=word):
        DATASETS.build(altered(change))


def test_polygons_of_crowds_have_other_boxes(altered):
    def change(content):
        for one in content['annotations']:
            if one['category_id'] == 1:
                one['iscrowd'] = 1
                one['bbox'] = [side / 2 for side in one['bbox']]

    lines = DATASETS.build(altered(change)).boxes.odd('x')
    assert not any('masks' in line for line in lines)


def test_facts_of_boxes(altered):
    """Repeated boxes and boxes given by two corners are reported."""

    sizes = []

    def change(content):
        one = content['annotations'][0]
        content['annotations'].append(dict(one, id=10**6))
        sizes.extend(one['bbox'][2:] for one in content['annotations'])

    boxes = DATASETS.build(altered(change)).boxes
    totals = boxes.totals()
    small = sum(width * height < 32**2 for width, height in sizes)
    assert totals['small'] == small and 0 < small < len(sizes)
    assert totals['twice'] == 1 and not totals['beyond the image']
    assert len(boxes.odd('a.json')) == 1

    def corners(one):
        x, y, width, height = one['bbox']
        return [x, y, x + width, y + height]

    boxes = DATASETS.build(altered(each(bbox=corners))).boxes
    assert boxes.totals()['beyond the image'] > 5
    assert any('corners' in line for line in boxes.odd('a.json'))


def test_damaged_file(altered):
    dataset = altered(lambda content: None)
    for text in ('[]', '{"images": [', '[' * 100_000):
        Path(dataset.ann_file).write_text(text)
        with pytest.raises(ValueError, match=r'altered\.json'):
            DATASETS.build(dataset)


def judged_by(shapes, folder, ann_file, **metric):
    """Return a runner that tests with this annotation file and metric."""
    cfg = shapes_config(shapes, folder)
    cfg.test_evaluator.update(ann_file=ann_file, **metric)
    cfg.test_dataloader.dataset.ann_file = ann_file
    runner = ConsoleRunner.from_cfg(cfg)
    assert runner.test_loop
    return runner


def test_images_without_annotations(shapes, altered, tmp_path):
    """A test set without annotations can be predicted but not evaluated."""
    dataset = altered(lambda content: content.pop('annotations'))
    assert len(DATASETS.build(dict(dataset, test_mode=True))) == 6
    runner = judged_by(shapes, tmp_path, dataset.ann_file)
    with pytest.raises(ValueError, match='format_only'):
        LookHook().before_run(runner)
    (metric,) = runner.test_evaluator.metrics
    metric.format_only = True
    LookHook().before_run(runner)


def test_what_the_evaluation_counts():
    """COCO's metric counts objects that mmdet leaves out of known classes."""
    facts = BoxFacts(['a'], masks=False)
    one = dict(id=1, image_id=1, bbox=[1, 1, 4, 4], area=16)
    facts.take(one, (9, 9), None)
    (line,) = facts.odd('x.json', judged=True)[:1]
    assert 'iscrowd' not in line
    facts.take(one | dict(area=0), (9, 9), 'a')
    assert 'iscrowd' in facts.odd('x.json', judged=True)[0]


def test_numbers_of_each_class_have_its_name(shapes, altered, tmp_path):
    """mmdet and pycocotools read the ids of categories in different orders."""

    def swap(content):
        first, second = content['categories'][:2]
        first['id'], second['id'] = second['id'], first['id']

    runner = judged_by(
        shapes, tmp_path, altered(swap).ann_file, classwise=True
    )
    with pytest.raises(ValueError, match='classwise'):
        LookHook().before_run(runner)
    (metric,) = runner.test_evaluator.metrics
    metric.classwise = False
    LookHook().before_run(runner)


def test_size_is_that_of_the_decoded_image(shapes, tmp_path):
    """The look before a run checks headers; the loader checks each image."""
    root = shutil.copytree(shapes, tmp_path / 'shapes')
    exif = Image.Exif()
    exif[0x0112] = 6
    path = root / 'train/000003.jpg'
    with Image.open(path) as image:
        image.crop((0, 0, 96, 80)).save(path, exif=exif)
    dataset = DATASETS.build(shapes_config(root).val_dataloader.dataset)
    look = look_at(dict(val=dataset))
    (wrong,) = look.wrong
    assert '000003' in wrong
    assert not [line for line in look.odd if 'annotated boxes' in line]
    judge_images(dataset)
    assert dataset[0]
    with pytest.raises(ValueError, match='000003'):
        dataset[3]


def test_images_whose_size_does_not_tell_that_they_are_turned(
    shapes, tmp_path
):
    root = shutil.copytree(shapes, tmp_path / 'shapes')
    path = root / 'train/000003.jpg'
    exif = Image.Exif()
    exif[0x0112] = 3
    Image.open(path).save(path, exif=exif)
    dataset = DATASETS.build(shapes_config(root).val_dataloader.dataset)
    look = look_at(dict(val=dataset))
    (line,) = [line for line in look.odd if path.name in line]
    assert 'annotated boxes' in line and not look.wrong


def test_images_of_other_bits(shapes, tmp_path):
    """mmdet would use the upper 8 of 16 bits, which are 0 here."""
    root = shutil.copytree(shapes, tmp_path / 'shapes')
    path = root / 'train/000003.jpg'
    with Image.open(path) as image:
        Image.new('I;16', image.size, 200).save(path, 'PNG')
    dataset = DATASETS.build(shapes_config(root).val_dataloader.dataset)
    judge_images(dataset)
    assert '000003' in look_at(dict(val=dataset)).wrong[0]


def test_a_set_of_mmdet_has_facts_too(shapes):
    """mmdet's own set has the same facts, as no object is left out here."""
    ours = shapes_config(shapes).train_dataloader.dataset
    theirs = dict(ours, type='mmdet.CocoDataset')
    found = [box_facts(DATASETS.build(cfg)).classes for cfg in (theirs, ours)]
    assert found[0] == found[1] and found[0]['circle']['objects']


def test_some_of_the_classes(shapes):
    """Some classes in the file's order are accepted; others are left out."""
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
    for backend in (None, dict(backend='local')):
        beyond.backend_args = backend
        with pytest.raises(FileNotFoundError, match=r'\.\./val'):
            DATASETS.build(beyond)
    copy = shutil.copytree(shapes, tmp_path / 'shapes')
    for number in (1, 4):
        (copy / 'train' / f'{number:06d}.jpg').unlink()
    dataset = shapes_config(copy).val_dataloader.dataset
    with pytest.raises(FileNotFoundError, match='000001'):
        DATASETS.build(dataset)
