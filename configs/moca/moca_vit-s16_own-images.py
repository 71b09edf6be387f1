# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Pretraining of a ViT-S/16, with a quarter of ViT-B's parameters, for few
# images or one small GPU. Not in the paper; the decoder is the paper's, scaled
# with the encoder.
_base_ = './moca_vit-b16_own-images.py'

model = dict(
    backbone=dict(arch='deit-s'), neck=dict(embed_dims=256, num_heads=8)
)
