# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Fine-tuning of the quick start's network, on any folder of classes. It is
# milder than ImageNet's recipe, which is too strong for 48 pixels.
_base_ = [
    '../classification/finetune_vit-b16_100e_in1k.py',
    '../_base_/models/vit-tiny.py',
]

num_classes = 12
data_root = 'data/textures/'
batch_size = 64

model = dict(
    data_preprocessor=dict(_base_.tiny_preprocessor, num_classes=num_classes),
    backbone=dict(_base_.tiny_backbone, drop_path_rate=0.1),
    head=dict(num_classes=num_classes, in_channels=128),
)

train_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    dict(type='mmmoca.LoadImage'),
    _base_.tiny_crop,
    dict(
        type='RandomErasing',
        erase_prob=0.25,
        mode='rand',
        fill_color=_base_.tiny_preprocessor.mean,
        fill_std=_base_.tiny_preprocessor.std,
    ),
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
val_evaluator = dict(topk=(1,))
test_evaluator = val_evaluator

optim_wrapper = dict(optimizer=dict(lr=1e-3))
train_cfg = dict(max_epochs=10)
auto_scale_lr = dict(enable=False, base_batch_size=batch_size)
default_hooks = dict(logger=dict(interval=10))
