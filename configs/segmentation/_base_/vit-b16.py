# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The settings that segmentors with a ViT-B/16 share, for crops of 512 pixels.
# All types name their scope, so that the config can be inherited anywhere.
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
        size=(512, 512),
    ),
    backbone=dict(
        type='mmpretrain.VisionTransformer',
        arch='b',
        img_size=(512, 512),
        patch_size=16,
        out_type='featmap',  # patch tokens after the final norm
        init_cfg=dict(
            type='Pretrained',
            # After mmmoca-teacher:// write any file that
            # docs/guides/checkpoints.md lists: a checkpoint of a pretraining
            # run, of the authors' release, of DINO, iBOT, MAE, ...
            checkpoint='mmmoca-teacher://'
            'work_dirs/moca_vit-b16_200e/epoch_200.pth',
            prefix='backbone.',
        ),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
)
