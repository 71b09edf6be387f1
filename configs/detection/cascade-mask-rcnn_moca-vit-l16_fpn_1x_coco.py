# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Cascade Mask R-CNN on a ViT-L/16. The pyramid reads layers at the same
# fractions of the depth. Not in the paper.
_base_ = './cascade-mask-rcnn_moca-vit-b16_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        arch='l',
        out_indices=[7, 11, 15, 23],
        init_cfg=dict(
            checkpoint='mmmoca-teacher://'
            'work_dirs/moca_vit-l16_200e/epoch_200.pth'
        ),
    ),
    neck=[
        dict(_base_.pyramid, in_channels=1024),
        dict(type='FPN', in_channels=[1024] * 4, out_channels=256, num_outs=5),
    ],
)
activation_checkpointing = [f'backbone.layers.{i}' for i in range(24)]
