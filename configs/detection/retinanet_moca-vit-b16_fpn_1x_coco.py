# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# RetinaNet, a one-stage detector without masks, as an example of another model
# of mmdet. Not in the paper.
_base_ = [
    'mmdet::_base_/models/retinanet_r50_fpn.py',
    './_base_/vit-b16_adamw_1x_coco.py',
]

model = dict(
    type='mmmoca.CheckedDetector',
    detector='RetinaNet',
    num_classes=80,
    # FPN adds strides 64 and 128.
    backbone=dict(
        _delete_=True, **_base_.backbone | dict(out_indices=[5, 7, 11])
    ),
    neck=[
        dict(_base_.pyramid, strides=(8, 16, 32)),
        dict(_base_.model.neck, start_level=0, in_channels=[768] * 3),
    ],
)
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
# Annotations without masks.
train_pipeline[2].with_mask = test_pipeline[2].with_mask = False
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
val_evaluator = test_evaluator = dict(metric='bbox')
