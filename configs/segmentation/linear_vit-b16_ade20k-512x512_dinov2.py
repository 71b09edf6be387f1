# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Frozen linear segmentation of ADE20K as DINOv2 does it: without dropout, with
# another weight decay and schedule.
_base_ = ['./linear_vit-b16_ade20k-512x512.py']

model = dict(decode_head=dict(dropout_ratio=0.0))
optim_wrapper = dict(optimizer=dict(weight_decay=1e-4))
param_scheduler = [
    dict(
        type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=1500
    ),
    dict(type='PolyLR', power=1.0, eta_min=0.0, by_epoch=False, begin=1500),
]
