# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# A linear probe of frozen patch features, as DINOv3 does it on ADE20K: batch
# norm and one linear layer on the last block's map after its final norm,
# 40 000 steps of 16 images, windows of 512 every 341 pixels.
_base_ = ['./vit-b16.py']

model = dict(
    backbone=dict(frozen_stages=12),
    decode_head=dict(
        type='mmmoca.LinearSegmentationHead',
        in_channels=768,
        num_classes=150,
        dropout_ratio=0.1,
        loss_decode=dict(type='CrossEntropyLoss', avg_non_ignore=True),
        init_cfg=dict(type='Normal', std=0.01, override=dict(name='conv_seg')),
    ),
)

optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(
        type='AdamW', lr=1e-3, betas=(0.9, 0.999), weight_decay=1e-3
    ),
)
param_scheduler = [
    dict(
        type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=1500
    ),
    # The schedule ends with the run.
    dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=False, begin=1500),
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=40000, val_interval=5000)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(enable=False, base_batch_size=16)
