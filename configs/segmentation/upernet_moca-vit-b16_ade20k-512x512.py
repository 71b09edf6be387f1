# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# UPerNet on four scales of the plain ViT, with the recipe of iBOT and MAE as
# in mmsegmentation's config for MAE (AdamW, layer decay 0.65). Not in the
# paper.
_base_ = [
    './_base_/vit-b16.py',
    './_base_/ade20k_512x512.py',
    './_base_/runtime_by_iter.py',
]

norm_cfg = dict(type='SyncBN')

model = dict(
    backbone=dict(
        out_indices=[3, 5, 7, 11],
        final_norm=False,
        drop_path_rate=0.1,
    ),
    neck=dict(
        type='mmmoca.ViTFeaturePyramid', in_channels=768, norm_cfg=norm_cfg
    ),
    decode_head=dict(
        type='UPerHead',
        in_channels=[768, 768, 768, 768],
        in_index=[0, 1, 2, 3],
        pool_scales=(1, 2, 3, 6),
        channels=768,
        dropout_ratio=0.1,
        num_classes=150,
        norm_cfg=norm_cfg,
        loss_decode=dict(type='CrossEntropyLoss'),
    ),
    auxiliary_head=dict(
        type='FCNHead',
        in_channels=768,
        in_index=2,
        channels=256,
        num_convs=1,
        concat_input=False,
        dropout_ratio=0.1,
        num_classes=150,
        norm_cfg=norm_cfg,
        loss_decode=dict(type='CrossEntropyLoss', loss_weight=0.4),
    ),
)

optim_wrapper = dict(
    type='mmmoca.MixedPrecisionOptimWrapper',
    optimizer=dict(
        type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05
    ),
    constructor='mmmoca.LayerDecayOptimWrapperConstructor',
    paramwise_cfg=dict(
        layer_decay_rate=0.65,
        flat_decay_mult=0.0,  # norms and biases
        custom_keys={
            '.cls_token': dict(decay_mult=0.0),
            '.pos_embed': dict(decay_mult=0.0),
        },
    ),
)
param_scheduler = [
    dict(
        type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=1500
    ),
    # The schedule ends with the run.
    dict(type='PolyLR', power=1.0, eta_min=0.0, by_epoch=False, begin=1500),
]
train_dataloader = dict(
    batch_size=2,  # times 8 GPUs
    sampler=dict(infinite=True),
)
train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=160000, val_interval=16000
)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
default_hooks = dict(checkpoint=dict(interval=16000))
auto_scale_lr = dict(enable=False, base_batch_size=16)
