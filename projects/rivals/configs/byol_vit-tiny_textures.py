# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# BYOL with the demo's encoder, images, views and schedule. As in the best of
# twelve trials, the teacher's momentum rises from 0.8 to 0.95 and no view is
# solarised.
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
train_pipeline = _base_.train_pipeline
train_pipeline[2].transforms[1][3].prob = 0
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
train_cfg = dict(max_iters=740)
default_hooks = dict(rival=dict(end=0.05))
