# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# A linear probe with your own masks: batch norm and one linear layer on frozen
# patch features. The layout and the settings are those of the base config
# below.
_base_ = ['./segmenter_moca-vit-b16_mask_own-masks-512x512.py']

model = dict(
    backbone=dict(frozen_stages=12),
    decode_head=dict(
        _delete_=True,
        type='mmmoca.LinearSegmentationHead',
        in_channels=768,
        num_classes=2,
        dropout_ratio=0.1,
        loss_decode=dict(type='CrossEntropyLoss', avg_non_ignore=True),
        init_cfg=dict(type='Normal', std=0.01, override=dict(name='conv_seg')),
    ),
)
optim_wrapper = dict(
    optimizer=dict(_delete_=True, type='AdamW', lr=1e-3, weight_decay=1e-3)
)
auto_scale_lr = dict(base_batch_size=16)
