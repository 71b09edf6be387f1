# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Cascade Mask R-CNN on your own boxes and masks. _base_/own-coco.py says where
# they must be, and explains the settings.
_base_ = [
    './cascade-mask-rcnn_moca-vit-b16_fpn_1x_coco.py',
    './_base_/own-coco.py',
]

data_root = 'data/own/'
model = dict(num_classes=len(_base_.names))
train_dataloader = dict(dataset=_base_.own_train)
val_dataloader = test_dataloader = dict(dataset=_base_.own_val)
val_evaluator = test_evaluator = dict(ann_file=_base_.own_annotations)
param_scheduler = [_base_.own_schedule]
