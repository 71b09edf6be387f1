# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Fine-tuning with Segmenter's recipe for ADE20K (lr 0.001, 64 epochs of
# batches of 8, windows of 512 every 512 pixels) and the head of the paper's
# Table 6. Not in the paper.
_base_ = [
    './_base_/segmenter_moca-vit-b16.py',
    './_base_/ade20k_512x512.py',
    './_base_/schedule_216e.py',
    './_base_/runtime.py',
]

crop_size = (512, 512)

model = dict(
    data_preprocessor=dict(size=crop_size),
    backbone=dict(img_size=crop_size),
    decode_head=dict(num_classes=150),
    test_cfg=dict(crop_size=crop_size, stride=(512, 512)),
)
optim_wrapper = dict(optimizer=dict(lr=0.001))
train_cfg = dict(max_epochs=64)
