# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# MAE at 64 pixels on the images that projects/rivals/photographs.py cuts.
_base_ = './mae_vit-tiny_textures.py'

model = dict(backbone=dict(img_size=64), neck=dict(num_patches=64))
train_pipeline = _base_.train_pipeline
train_pipeline[1].reduce_to = 136
train_pipeline[2].transforms[0].scale = 64
train_dataloader = dict(
    dataset=dict(data_root='data/photographs/', pipeline=train_pipeline)
)
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = test_pipeline[2].crop_size = 64
train_cfg = dict(max_iters=2060)
