# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Cascade Mask R-CNN on a ViT-S/16. Not in the paper.
_base_ = [
    './cascade-mask-rcnn_moca-vit-b16_fpn_1x_coco.py',
    '../_base_/models/vit-s16.py',
]

model = dict(
    backbone=_base_.s16_backbone,
    neck=[
        dict(_base_.pyramid, in_channels=384),
        dict(type='FPN', in_channels=[384] * 4, out_channels=256, num_outs=5),
    ],
)
