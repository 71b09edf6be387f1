# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a run records of its images, as its config has them."""

import pytest

from mmmoca.checkpoints import run_record

from .files import mm_vit

LOAD = dict(type='LoadImageFromFile')
PACK = dict(type='PackInputs')
TRAIN = [LOAD, dict(type='RandomResizedCrop', scale=48), PACK]
STALE = [
    LOAD,
    dict(type='ResizeEdge', scale=55, backend='pillow'),
    dict(type='CenterCrop', crop_size=48),
    PACK,
]


def said(pipeline, **settings):
    """Of a run that was evaluated so, beside a variable that it inherited."""
    config = dict(
        test_pipeline=STALE,
        train_dataloader=dict(dataset=dict(pipeline=TRAIN)),
        model=dict(data_preprocessor=dict(mean=[1.0, 2.0, 3.0])),
        val_dataloader=pipeline and dict(dataset=dict(pipeline=pipeline)),
        **settings,
    )
    return run_record(config, mm_vit())['preprocessing']


def test_pipeline_of_the_evaluation():
    other = [LOAD, dict(STALE[1], scale=64, backend='cv2'), *STALE[2:]]
    known = said(other)
    assert (known['resize'], known['cropped']) == (64, 48)
    assert (known['backend'], known['channel_order']) == ('cv2', 'bgr')
    tested = dict(test_dataloader=dict(dataset=dict(pipeline=other)))
    assert said(None, **tested)['resize'] == 64
    assert said(None)['resize'] == 55


@pytest.mark.parametrize(
    'steps, resize',
    [
        ([dict(type='Resize', scale=48)], None),
        ([dict(type='Resize', scale=(96, 48), keep_ratio=True)], 'unknown'),
        ([], 1),  # of the right size, relative to `cropped`
    ],
)
def test_whole_images(steps, resize):
    known = said([LOAD, *steps, PACK])
    assert known.get('resize', 'unknown') == resize
    if resize is None:
        assert known['interpolation'] == 'bilinear'
