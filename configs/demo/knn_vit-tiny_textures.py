# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# k-NN of the demo's network, on any folder of classes.
_base_ = [
    '../classification/knn_vit-b16_in1k.py',
    '../_base_/models/vit-tiny.py',
    '../_base_/datasets/textures.py',
]

settings = 'own_classes'  # data_root=..., and others

model = dict(
    data_preprocessor=_base_.tiny_preprocessor, backbone=_base_.tiny_backbone
)
test_dataloader = _base_.tiny_loader
test_cfg = dict(bank_dataloader=_base_.tiny_loader)
