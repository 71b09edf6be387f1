# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# k-NN of the quick start's network, on any folder of classes.
_base_ = '../classification/knn_vit-b16_in1k.py'

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
test_cfg = dict(
    bank_dataloader=dict(
        num_workers=0,
        persistent_workers=False,
        dataset=dict(data_root=data_root, pipeline=test_pipeline),
    ),
)
