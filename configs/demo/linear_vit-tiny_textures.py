# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Linear probing of the quick start's network, on any folder of classes.
_base_ = '../classification/linear_vit-b16_100e_in1k.py'

num_classes = 12
data_root = 'data/textures/'
batch_size = 64

model = dict(
    data_preprocessor=dict(
        mean=[127.5, 127.5, 127.5], std=[63.75, 63.75, 63.75]
    ),
    backbone=dict(
        arch=dict(
            _delete_=True,
            embed_dims=128,
            num_layers=4,
            num_heads=4,
            feedforward_channels=512,
        ),
        img_size=48,
        patch_size=8,
    ),
    head=dict(num_classes=num_classes),
)

train_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    dict(type='mmmoca.LoadImage'),
    dict(
        type='mmmoca.RandomResizedCrop', scale=48, crop_ratio_range=(0.3, 1.0)
    ),
    dict(type='PackInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeEdge', scale=48, edge='short'),
    dict(type='CenterCrop', crop_size=48),
    dict(type='PackInputs'),
]
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
