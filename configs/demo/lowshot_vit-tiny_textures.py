# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Low-shot classification by the demo's network.
_base_ = [
    '../classification/lowshot_vit-b16_in1k.py',
    '../_base_/models/vit-tiny.py',
    '../_base_/datasets/textures.py',
]

model = dict(
    data_preprocessor=_base_.tiny_preprocessor, backbone=_base_.tiny_backbone
)
test_dataloader = _base_.tiny_loader
subset_root = 'data/textures/subsets/'
test_cfg = dict(
    train_dataloader=_base_.tiny_loader,
    subsets={
        '1shot': [f'{subset_root}1shot_set{i}.txt' for i in range(3)],
        '2shot': [f'{subset_root}2shot_set{i}.txt' for i in range(3)],
        '5shot': [f'{subset_root}5shot_set{i}.txt' for i in range(3)],
        '1percent': [f'{subset_root}1percent.txt'],
    },
)
