# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Linear probing of [CLS] and [AVG], concatenated. For iBOT's protocol for
# ViT-S, which takes [CLS] of the last four blocks, set
# model.backbone.out_indices=[8,9,10,11], and in the neck num_blocks=4,
# embed_dims=384, with_avg=False.
_base_ = './linear_vit-b16_100e_in1k.py'

model = dict(
    backbone=dict(out_type='raw'),
    neck=dict(_delete_=True, type='mmmoca.TokenFeatures'),
)
