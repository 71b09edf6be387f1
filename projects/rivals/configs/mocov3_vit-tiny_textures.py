# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# MoCo-v3 with the demo's encoder, images, views and schedule. As in the best
# of twelve trials, the teacher's momentum rises from 0.8 to 0.98.
_base_ = './moca_vit-tiny_textures.py'

mlp = dict(
    type='NonLinearNeck',
    in_channels=128,
    hid_channels=512,
    out_channels=128,
    with_last_bn_affine=False,
    with_avg_pool=False,
    norm_cfg=dict(type='BN1d'),
)
model = dict(
    _delete_=True,
    type='MoCoV3',
    base_momentum=0.2,
    data_preprocessor={{_base_.model.data_preprocessor}},
    backbone=dict(
        type='MoCoV3ViT',
        arch={{_base_.model.backbone.arch}},
        img_size=48,
        patch_size=8,
        stop_grad_conv1=True,
    ),
    neck=dict(num_layers=3, **mlp),
    head=dict(
        type='MoCoV3Head',
        predictor=dict(num_layers=2, **mlp),
        loss=dict(type='CrossEntropyLoss', loss_weight=2 * 0.2),
        temperature=0.2,
    ),
)
# The recipes of MoCo-v3 and BYOL solarise a view; MOCA's here does not.
train_pipeline = _base_.train_pipeline
train_pipeline[2].transforms[1].insert(
    3, dict(type='Solarize', thr=128, prob=0.2)
)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
optim_wrapper = dict(
    constructor='DefaultOptimWrapperConstructor',
    optimizer=dict(lr=1e-3),
    clip_grad=None,
    paramwise_cfg=None,
)
train_cfg = dict(max_iters=660)
default_hooks = dict(
    rank_me=None,
    codebook=None,
    teacher_ema=None,
    rival=dict(type='RivalHook', end=0.02),
)
