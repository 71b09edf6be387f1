# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Linear probing of the quick start's network, on any folder of classes.
_base_ = [
    '../classification/linear_vit-b16_100e_in1k.py',
    '../_base_/models/vit-tiny.py',
]

num_classes = 12
data_root = 'data/textures/'
batch_size = 64

model = dict(
    data_preprocessor=_base_.tiny_preprocessor,
    backbone=_base_.tiny_backbone,
    head=dict(num_classes=num_classes),
)

train_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    dict(type='mmmoca.LoadImage'),
    _base_.tiny_crop,
    dict(type='PackInputs'),
]
test_pipeline = _base_.tiny_pipeline
train_dataloader = dict(
    batch_size=batch_size,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(data_root=data_root, pipeline=train_pipeline),
)
val_dataloader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(data_root=data_root, pipeline=test_pipeline),
)
test_dataloader = val_dataloader

optim_wrapper = dict(optimizer=dict(lr=batch_size / 256))
train_cfg = dict(max_epochs=10)
auto_scale_lr = dict(enable=False, base_batch_size=batch_size)
default_hooks = dict(logger=dict(interval=10))
