# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# A one-stage detector, boxes only, as an example of any other model of mmdet.
# Not in the paper.
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
val_evaluator = dict(metric='bbox')
test_evaluator = val_evaluator
