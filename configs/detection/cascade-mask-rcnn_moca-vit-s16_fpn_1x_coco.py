# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# ViT-S/16, as of moca_vit-s16_own-images.py. Not in the paper.
_base_ = './cascade-mask-rcnn_moca-vit-b16_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        arch='deit-s',
        init_cfg=dict(
            checkpoint='mmmoca-teacher://'
            'work_dirs/moca_vit-s16_own-images/epoch_200.pth'
        ),
    ),
    neck=[
        dict(_base_.pyramid, in_channels=384),
        dict(type='FPN', in_channels=[384] * 4, out_channels=256, num_outs=5),
    ],
)
