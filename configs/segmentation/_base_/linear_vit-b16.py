# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# A linear probe of frozen patch features, as DINOv3 does it on ADE20K: batch
# norm and one linear layer on the last block's map after its final norm,
# 40 000 steps of 16 images, windows of 512 every 341 pixels.
size = (512, 512)

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
        size=size,
    ),
    backbone=dict(
        type='mmpretrain.VisionTransformer',
        arch='b',
        img_size=size,
        patch_size=16,
        out_type='featmap',  # patch tokens after the final norm
        frozen_stages=12,
        init_cfg=dict(
            type='Pretrained',
            # After mmmoca-teacher:// any file of docs/guides/checkpoints.md:
            # a pretraining run, the authors' release, DINO, iBOT, MAE, ...
            checkpoint='mmmoca-teacher://'
            'work_dirs/moca_vit-b16_200e/epoch_200.pth',
            prefix='backbone.',
        ),
    ),
    decode_head=dict(
        type='mmmoca.LinearSegmentationHead',
        in_channels=768,
        num_classes=150,
        dropout_ratio=0.1,
        loss_decode=dict(type='CrossEntropyLoss', avg_non_ignore=True),
        init_cfg=dict(type='Normal', std=0.01, override=dict(name='conv_seg')),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='slide', crop_size=size, stride=(341, 341)),
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
    # It ends with the run.
    dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=False, begin=1500),
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=40000, val_interval=5000)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(enable=False, base_batch_size=16)
