# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Low-shot classification by the quick start's network.
_base_ = '../classification/lowshot_vit-b16_in1k.py'

data_root = 'data/textures/'
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeEdge', scale=48, edge='short'),
    dict(type='CenterCrop', crop_size=48),
    dict(type='PackInputs'),
]

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
)
test_dataloader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(data_root=data_root, pipeline=test_pipeline),
)
subset_root = 'data/textures/subsets/'
test_cfg = dict(
    train_dataloader=dict(
        num_workers=0,
        dataset=dict(data_root=data_root, pipeline=test_pipeline),
    ),
    subsets={
        '1shot': [f'{subset_root}1shot_set{i}.txt' for i in range(3)],
        '2shot': [f'{subset_root}2shot_set{i}.txt' for i in range(3)],
        '5shot': [f'{subset_root}5shot_set{i}.txt' for i in range(3)],
        '1percent': [f'{subset_root}1percent.txt'],
    },
)
