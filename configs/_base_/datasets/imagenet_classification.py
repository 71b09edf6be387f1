# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Labelled images to train classifiers on, with the crops of linear probing.
train_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    dict(type='mmmoca.LoadImage'),
    dict(type='mmmoca.RandomResizedCrop', scale=224),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackInputs'),
]
# MMPreTrain's own loader, which its inferencer knows how to replace.
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='mmmoca.ResizeEdge',
        scale=256,
        edge='short',
        backend='pillow',
        interpolation='bicubic',
    ),
    dict(type='CenterCrop', crop_size=224),
    dict(type='PackInputs'),
]

dataset_type = 'mmmoca.ImageFolder'
data_root = 'data/imagenet/'  # train/<class>/*.JPEG, val/<class>/*.JPEG
train_dataloader = dict(
    batch_size=128,  # times 8 GPUs: 1024
    num_workers=8,
    persistent_workers=True,
    pin_memory=True,
    drop_last=True,
    sampler=dict(type='mmmoca.SeededSampler'),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        data_prefix='train',
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=128,
    num_workers=8,
    persistent_workers=True,
    pin_memory=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        data_prefix='val',
        pipeline=test_pipeline,
        test_mode=True,
    ),
)
test_dataloader = val_dataloader
