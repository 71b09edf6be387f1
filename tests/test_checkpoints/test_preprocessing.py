# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a run records of its images; exports and encoders have the rest."""

import pytest

from mmmoca.checkpoints import run_record

from ..helpers.checkpoint_files import mm_vit


@pytest.mark.parametrize(
    'steps, resize',
    [
        ([dict(type='Resize', scale=48)], None),
        ([dict(type='Resize', scale=(96, 48), keep_ratio=True)], 'unknown'),
        ([], 1),  # of the right size, relative to `cropped`
    ],
)
def test_whole_images(steps, resize):
    """Beside the training's pipeline, and a variable that was inherited."""
    load, pack = dict(type='LoadImageFromFile'), dict(type='PackInputs')
    edge = dict(type='ResizeEdge', scale=55)
    other = [load, edge, dict(type='CenterCrop', crop_size=48), pack]
    config = dict(
        train_dataloader=dict(dataset=dict(pipeline=other)),
        val_dataloader=dict(dataset=dict(pipeline=[load, *steps, pack])),
        test_pipeline=other,
    )
    known = run_record(config, mm_vit())['preprocessing']
    assert known.get('resize', 'unknown') == resize
    if resize is None:
        assert known['interpolation'] == 'bilinear'
