# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# BYOL on the quick start's encoder, images, views and schedule.
_base_ = './mocov3_vit-tiny_textures.py'

model = dict(
    type='BYOL',
    neck=dict(num_layers=2, with_bias=True, with_last_bn=False),
    head=dict(
        _delete_=True,
        type='LatentPredictHead',
        predictor=dict(
            type='NonLinearNeck',
            in_channels=128,
            hid_channels=512,
            out_channels=128,
            num_layers=2,
            with_bias=True,
            with_last_bn=False,
            with_avg_pool=False,
            norm_cfg=dict(type='BN1d'),
        ),
        loss=dict(type='CosineSimilarityLoss'),
    ),
)
