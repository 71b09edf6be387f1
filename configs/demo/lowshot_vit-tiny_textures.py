# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Low-shot classification with the demo's network, on any folder of classes.
_base_ = [
    '../classification/lowshot_vit-b16_in1k.py',
    '../_base_/models/vit-tiny.py',
    '../_base_/datasets/textures.py',
]

settings = 'own_classes'  # data_root=..., and others

model = dict(
    data_preprocessor=_base_.tiny_preprocessor, backbone=_base_.tiny_backbone
)
test_dataloader = _base_.tiny_loader
test_cfg = dict(
    train_dataloader=_base_.tiny_loader,
    data_root=_base_.tiny_data,
    seed=0,
    subsets={
        '_delete_': True,
        '1shot': dict(shots=1, sets=3),
        '2shot': dict(shots=2, sets=3),
        '5shot': dict(shots=5, sets=3),
        '1percent': dict(percent=1, sets=1),
    },
)
