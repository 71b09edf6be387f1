# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# MAE with the demo's encoder, images and schedule. As in the best of twelve
# trials, it masks 40 % of the patches, and its only view is cropped and
# flipped.
_base_ = './mocov3_vit-tiny_textures.py'

model = dict(
    _delete_=True,
    type='MAE',
    data_preprocessor={{_base_.model.data_preprocessor}},
    backbone=dict(
        type='MAEViT',
        arch={{_base_.model.backbone.arch}},
        img_size=48,
        patch_size=8,
        mask_ratio=0.4,
    ),
    neck=dict(
        type='MAEPretrainDecoder',
        num_patches=36,
        patch_size=8,
        embed_dim=128,
        decoder_embed_dim=96,
        decoder_depth=1,
        decoder_num_heads=4,
    ),
    # With normalised patches as targets it learns hardly anything here.
    head=dict(
        type='MAEPretrainHead',
        norm_pix=False,
        patch_size=8,
        loss=dict(type='PixelReconstructionLoss', criterion='L2'),
    ),
)
view_pipeline1 = _base_.view_pipeline1
view_pipeline1[1].prob = view_pipeline1[2].prob = 0  # colour and blur
train_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    dict(type='mmmoca.LoadImage'),
    dict(type='Compose', transforms=view_pipeline1),
    dict(type='PackInputs'),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
optim_wrapper = dict(optimizer=dict(lr=2e-3, betas=(0.9, 0.95)))
train_cfg = dict(max_iters=2000)
