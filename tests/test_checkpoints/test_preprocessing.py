# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a run records of its images; exports and encoders have the rest."""

import pytest

from mmmoca.checkpoints import run_record

from ..helpers.checkpoint_files import mm_vit


@pytest.mark.parametrize(
    'steps, expected',
    [
        ([dict(type='Resize', scale=48)], ['Resize']),
        ([dict(type='Resize', scale=(96, 48), keep_ratio=True)], []),
        ([], ['ResizeEdge', 'CenterCrop']),  # of the right size already
    ],
)
def test_whole_images(steps, expected):
    """Beside the training's pipeline, and a variable that was inherited."""
    load, pack = dict(type='LoadImageFromFile'), dict(type='PackInputs')
    edge = dict(type='ResizeEdge', scale=55)
    other = [load, edge, dict(type='CenterCrop', crop_size=48), pack]
    config = dict(
        train_dataloader=dict(dataset=dict(pipeline=other)),
        val_dataloader=dict(dataset=dict(pipeline=[load, *steps, pack])),
        test_pipeline=other,
    )
    known = run_record(config, mm_vit())['preprocessing']['pipeline']
    assert [step['type'] for step in known] == ['LoadImageFromFile', *expected]
    if not steps:
        assert known[1]['scale'] == mm_vit().img_size[0]
