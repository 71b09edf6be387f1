# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Frozen linear segmentation of Cityscapes, with DINOv3's settings for ADE20K.
# The paper's own probe is segmenter_moca-vit-b16_linear_cityscapes-768x768.py.
_base_ = [
    './_base_/linear_vit-b16.py',
    './_base_/cityscapes_768x768.py',
    './_base_/runtime_by_iter.py',
]

train_pipeline = _base_.train_pipeline
train_pipeline[4].crop_size = (512, 512)  # RandomCrop
train_dataloader = dict(
    batch_size=2,  # times 8 GPUs
    sampler=dict(infinite=True),
    dataset=dict(pipeline=train_pipeline),
)
model = dict(decode_head=dict(num_classes=19))
