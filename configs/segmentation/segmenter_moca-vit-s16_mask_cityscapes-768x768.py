# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# ViT-S/16, as of moca_vit-s16_own-images.py. Not in the paper.
_base_ = './segmenter_moca-vit-b16_mask_cityscapes-768x768.py'

model = dict(
    backbone=dict(
        arch='deit-s',
        init_cfg=dict(
            checkpoint='mmmoca-teacher://'
            'work_dirs/moca_vit-s16_own-images/epoch_200.pth'
        ),
    ),
    decode_head=dict(
        in_channels=384, channels=384, embed_dims=384, num_heads=6
    ),
)
