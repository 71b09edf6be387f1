# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a run records about its images."""

import pytest

from mmmoca.checkpoints import (
    find_backbone,
    preprocessing_of,
    run_record,
)
from mmmoca.checkpoints.record import other_feature, other_normalisation

from ..helpers.checkpoint_files import mm_vit


@pytest.mark.parametrize(
    'steps, expected',
    [
        ([dict(type='Resize', scale=48)], ['Resize']),
        ([dict(type='Resize', scale=(96, 48), keep_ratio=True)], []),
        ([], ['ResizeEdge', 'CenterCrop']),  # already the right size
    ],
)
def test_whole_images(steps, expected):
    """The config also has a training pipeline and an inherited variable."""
    load, pack = dict(type='LoadImageFromFile'), dict(type='PackInputs')
    edge = dict(type='ResizeEdge', scale=55)
    other = [load, edge, dict(type='CenterCrop', crop_size=48), pack]
    deep = dict(type='mmmoca.LoadImage', cut_to_8_bits=True)
    config = dict(
        train_dataloader=dict(dataset=dict(pipeline=[deep, *other[1:]])),
        val_dataloader=dict(dataset=dict(pipeline=[load, *steps, pack])),
        test_pipeline=other,
    )
    known = run_record(config, mm_vit())['preprocessing']['pipeline']
    assert [step['type'] for step in known] == ['LoadImageFromFile', *expected]
    assert known[0]['cut_to_8_bits']  # which only the training has
    if not steps:
        assert known[1]['scale'] == mm_vit().img_size[0]


def test_crops_have_the_same_share_of_an_image():
    """The ratio of sizes is recorded; without a record, it is 256 to 224."""
    backbone = find_backbone(dict(state_dict=mm_vit().state_dict()))
    steps = [dict(type='ResizeEdge', scale=96, edge='short')]
    steps += [dict(type='CenterCrop', crop_size=48)]
    recorded = dict(pipeline=[dict(type='LoadImage'), *steps])
    recorded |= dict(mean=(1.0,) * 3, std=(2.0,) * 3)
    size = backbone.img_size[0]
    for record, share in (({}, 256 / 224), (recorded, 2)):
        own = backbone._replace(record=dict(preprocessing=record))
        for part in (own, own.resized((12, 12), 'bicubic')):
            scale = round(share * part.img_size[0])
            assert preprocessing_of(part).resize == scale
    assert part.img_size[0] != size


def test_one_number_is_that_of_each_channel():
    numbers = dict(mean=[99], std=[64])
    config = dict(model=dict(data_preprocessor=numbers))
    known = run_record(config, mm_vit())['preprocessing']
    assert (known['mean'], known['std']) == ((99,) * 3, (64,) * 3)


@pytest.mark.parametrize(
    ('changes', 'said'),
    [
        ({}, False),
        (dict(mean=(101.0, 102.0, 103.0)), False),
        (dict(mean=(127.5, 127.5, 127.5)), True),
        (dict(std=(1.0, 50.0, 50.0)), True),
        (dict(mean=(103.0, 102.0, 101.0), channel_order='bgr'), False),
        (dict(mean=(101.0,), std=(50.0,)), False),
        (dict(mean=None), False),
    ],
)
def test_images_that_were_normalised_otherwise(changes, said):
    images = dict(mean=(101.0, 102.0, 103.0), std=(50.0, 50.0, 50.0))
    images['channel_order'] = 'rgb'
    records = [dict(preprocessing=i) for i in (images | changes, images)]
    assert (other_normalisation(*records) is not None) == said


def test_a_feature_that_the_run_did_not_use():
    cls = dict(backbone=dict(out_type='cls_token'), neck=None)
    pooled = dict(type='GlobalAveragePooling')
    avg = dict(backbone=dict(out_type='featmap'), neck=pooled)
    boxes = dict(backbone=dict(out_type='featmap'), neck=[pooled])
    raw = dict(backbone=dict(out_type='raw'), neck=pooled)
    for saved, model, said in (
        ('cls', avg, True),
        ('avg', cls, True),
        ('avg', avg, False),
        ('cls', cls, False),
        ('cls', raw, False),
        ('cls', boxes, False),
        (None, cls, False),
    ):
        line = other_feature(dict(feature=saved), dict(model=model))
        assert (line is not None) == said
