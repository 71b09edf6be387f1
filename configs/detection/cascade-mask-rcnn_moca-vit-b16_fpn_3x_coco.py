# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Cascade Mask R-CNN for 36 epochs instead of 12. Not in the paper.
_base_ = './cascade-mask-rcnn_moca-vit-b16_fpn_1x_coco.py'

train_cfg = dict(max_epochs=36)
param_scheduler = [
    dict(
        type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=500
    ),
    dict(type='MultiStepLR', by_epoch=True, milestones=[27, 33], gamma=0.1),
]
