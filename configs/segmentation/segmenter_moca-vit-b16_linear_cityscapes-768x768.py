# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Linear probing as in the paper's Table 6, with all images. The authors
# released no segmentation code: this config is assembled from the paper's
# appendix and Segmenter's Cityscapes recipe.
_base_ = ['./segmenter_moca-vit-b16_mask_cityscapes-768x768.py']

model = dict(
    # All layers are frozen. Without drop path, training mode computes the same
    # as evaluation mode.
    backbone=dict(frozen_stages=12, drop_path_rate=0.0),
    decode_head=dict(
        _delete_=True,
        type='FCNHead',
        in_channels=768,
        channels=768,
        num_convs=0,
        kernel_size=1,
        concat_input=False,
        dropout_ratio=0.0,
        num_classes=19,
        loss_decode=dict(type='CrossEntropyLoss', avg_non_ignore=True),
        init_cfg=dict(
            type='TruncNormal', std=0.02, override=dict(name='conv_seg')
        ),
    ),
)
