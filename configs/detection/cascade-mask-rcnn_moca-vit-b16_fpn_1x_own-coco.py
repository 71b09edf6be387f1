# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Your own images with annotations in COCO's format:
#   data/own/annotations/{train,val}.json   data/own/{train,val}/*.jpg
# `classes` are the names of the file's categories, in the file's order. All
# heads follow from their number.
_base_ = './cascade-mask-rcnn_moca-vit-b16_fpn_1x_coco.py'

data_root = 'data/own/'
classes = ('circle', 'cross', 'square', 'triangle')

model = dict(num_classes=len(classes))
train_dataloader = dict(
    dataset=dict(
        data_root=data_root,
        ann_file='annotations/train.json',
        data_prefix=dict(img='train/'),
        metainfo=dict(classes=classes),
    )
)
val_dataloader = dict(
    dataset=dict(
        data_root=data_root,
        ann_file='annotations/val.json',
        data_prefix=dict(img='val/'),
        metainfo=dict(classes=classes),
    )
)
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=data_root + 'annotations/val.json')
test_evaluator = val_evaluator
