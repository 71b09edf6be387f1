# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# All names have their scope: the config can then be inherited from anywhere.
model = dict(
    type='EncoderDecoder',
    _scope_='mmseg',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
        size=(768, 768),
    ),
    backbone=dict(
        type='mmpretrain.VisionTransformer',
        arch='b',
        img_size=(768, 768),
        patch_size=16,
        out_type='featmap',  # patch tokens after the final norm
        interpolate_mode='bilinear',  # positions, as Segmenter resizes them
        drop_path_rate=0.1,
        init_cfg=dict(
            type='Pretrained',
            # After mmmoca-teacher:// any file of docs/guides/checkpoints.md:
            # a pretraining run, the authors' release, DINO, iBOT, MAE, ...
            checkpoint='mmmoca-teacher://'
            'work_dirs/moca_vit-b16_200e/epoch_200.pth',
            prefix='backbone.',
        ),
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
    train_cfg=dict(),
    test_cfg=dict(mode='slide', crop_size=(768, 768), stride=(512, 512)),
)
