# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Linear probing of the demo's network, on any folder of classes.
_base_ = [
    '../classification/linear_vit-b16_100e_in1k.py',
    '../_base_/models/vit-tiny.py',
    '../_base_/datasets/textures.py',
]

settings = 'own_classes'  # data_root=..., and others

num_classes = 12
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
train_dataloader = dict(
    _base_.tiny_loader,
    batch_size=batch_size,
    dataset=dict(data_root=_base_.tiny_data, pipeline=train_pipeline),
)
val_dataloader = test_dataloader = _base_.tiny_loader

optim_wrapper = dict(optimizer=dict(lr=batch_size / 256))
train_cfg = dict(max_epochs=10)
auto_scale_lr = dict(enable=False, base_batch_size=batch_size)
default_hooks = dict(logger=dict(interval=10))
