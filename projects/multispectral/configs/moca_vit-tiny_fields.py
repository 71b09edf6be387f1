# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Pretraining on the drawn fields, in minutes on two CPU cores. Network and
# learning rate are those of the demo, configs/demo/moca_vit-tiny_textures.py;
# momentum, K_new, masks and batch are those of
# projects/moca_vit-tiny_trials.py.
_base_ = [
    './moca_vit-b16_sentinel2.py',
    '../../../configs/_base_/models/vit-tiny.py',
]

fields = 'data/fields/'  # projects/multispectral/make_fields.py
size = 48

model = dict(
    backbone=dict(_base_.tiny_backbone, tap_layer=3),
    codebook=dict(num_words=256, num_new_words=4, border=1),
    neck=dict(embed_dims=96, depth=1, num_heads=4),
)

train_pipeline = _base_.train_pipeline
train_pipeline[2].transforms[0][0].update(scale=size)
train_pipeline[2].transforms[1][0].update(scale=size)
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = size
test_pipeline[2].crop_size = size

train_dataloader = dict(
    num_workers=1,
    dataset=dict(
        data_root=fields, data_prefix='train', pipeline=train_pipeline
    ),
)
labelled = dict(
    num_workers=1, dataset=dict(data_root=fields, pipeline=test_pipeline)
)
val_dataloader = labelled
test_dataloader = labelled
val_cfg = dict(data_root=fields, bank_dataloader=labelled)
test_cfg = dict(bank_dataloader=labelled)

optim_wrapper = dict(
    optimizer=dict(lr=2e-3), paramwise_cfg=dict(prototype_lr=2e-3)
)
param_scheduler = dict(warmup=0.1)
train_cfg = dict(max_epochs=20)
auto_scale_lr = dict(enable=False, base_batch_size=64)
default_hooks = dict(
    logger=dict(interval=18),
    checkpoint=dict(interval=5),
    teacher_ema=dict(momentum=0.95),
)
