# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# BYOL on the quick start's encoder, images, views and schedule.
_base_ = './mocov3_vit-tiny_textures.py'

mlp = dict(num_layers=2, with_bias=True, with_last_bn=False)
model = dict(
    type='BYOL',
    neck=mlp,
    head=dict(
        _delete_=True,
        type='LatentPredictHead',
        predictor=dict(_base_.mlp, **mlp),
        loss=dict(type='CosineSimilarityLoss'),
    ),
)
