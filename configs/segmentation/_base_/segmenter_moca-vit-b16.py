# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = ['./vit-b16.py']

size = (768, 768)
model = dict(
    data_preprocessor=dict(size=size),
    backbone=dict(
        img_size=size,
        interpolate_mode='bilinear',  # positions, as Segmenter resizes them
        drop_path_rate=0.1,
    ),
    # One layer of Segmenter's mask transformer.
    decode_head=dict(
        type='SegmenterMaskTransformerHead',
        in_channels=768,
        channels=768,
        embed_dims=768,
        num_layers=1,
        num_heads=12,
        num_classes=19,
        drop_rate=0.1,
        attn_drop_rate=0.1,
        drop_path_rate=0.0,
        dropout_ratio=0.0,
        loss_decode=dict(type='CrossEntropyLoss', avg_non_ignore=True),
    ),
    test_cfg=dict(crop_size=size, stride=(512, 512)),
)
