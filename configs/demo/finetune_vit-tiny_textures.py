# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Fine-tuning of the demo's network, on any folder of classes. The augmentation
# is milder than in ImageNet's recipe, which is too strong for 48 pixels.
_base_ = [
    '../classification/finetune_vit-b16_100e_in1k.py',
    '../_base_/models/vit-tiny.py',
    '../_base_/datasets/textures.py',
]

settings = 'own_classes'  # data_root=..., and others

num_classes = 12
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
train_dataloader = dict(
    _base_.tiny_loader,
    batch_size=batch_size,
    dataset=dict(data_root=_base_.tiny_data, pipeline=train_pipeline),
)
val_dataloader = test_dataloader = _base_.tiny_loader
val_evaluator = dict(topk=(1,))
test_evaluator = val_evaluator

optim_wrapper = dict(optimizer=dict(lr=1e-3))
param_scheduler = dict(warmup=0.5)  # fraction of the run
train_cfg = dict(max_epochs=10)
auto_scale_lr = dict(enable=False, base_batch_size=batch_size)
default_hooks = dict(logger=dict(interval=10))
