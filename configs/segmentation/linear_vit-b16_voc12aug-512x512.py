# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Frozen linear segmentation of PASCAL VOC 2012 with the 10 582 images of
# trainaug, with DINOv3's settings for ADE20K.
_base_ = [
    './_base_/linear_vit-b16.py',
    './_base_/voc12aug_512x512.py',
    './_base_/runtime_by_iter.py',
]

train_dataloader = dict(
    batch_size=2,  # times 8 GPUs
    sampler=dict(infinite=True),
)
model = dict(decode_head=dict(num_classes=21))
