# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
model = dict(
    type='mmmoca.MOCA',
    data_preprocessor=dict(
        type='mmmoca.ViewsDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        to_rgb=True,
    ),
    backbone=dict(
        type='mmmoca.MOCAViT',
        arch='b',
        img_size=224,
        patch_size=16,
        tap_layer=8,  # l, Table 2f
    ),
    codebook=dict(
        type='mmmoca.OnlineCodebook', num_words=4096, num_new_words=4, border=2
    ),
    neck=dict(
        type='mmmoca.CondenserNeck', embed_dims=512, depth=2, num_heads=16
    ),
    head=dict(
        type='mmmoca.AssignmentHead',
        lambda_img=0.5,
        kappa=3.0,  # 1 / tau, section 3.2.1
    ),
    # Two complementary rounds; 20 % of the patches are predicted in each.
    masking=dict(mask_ratios=(0.55, 0.75), decoder_mask_ratios=(0.35, 0.55)),
)
