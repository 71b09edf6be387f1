# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Labelled images to train classifiers on, with the crops of linear probing.
_base_ = ['./imagenet.py']

train_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    dict(type='mmmoca.LoadImage'),
    dict(type='mmmoca.RandomResizedCrop', scale=224),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackInputs'),
]

train_dataloader = dict(
    batch_size=128,  # times 8 GPUs: 1024
    num_workers=8,
    persistent_workers=True,
    pin_memory=True,
    drop_last=True,
    sampler=dict(type='mmmoca.SeededSampler'),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='mmmoca.ImageFolder',
        data_root=_base_.imagenet,
        data_prefix='train',
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    _base_.test_dataloader,
    batch_size=128,
    dataset=dict(_base_.test_dataloader.dataset, test_mode=True),
)
test_dataloader = val_dataloader
