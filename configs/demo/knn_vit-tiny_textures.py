# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# k-NN of the quick start's network, on any folder of classes.
_base_ = [
    '../classification/knn_vit-b16_in1k.py',
    '../_base_/models/vit-tiny.py',
]

model = dict(
    data_preprocessor=_base_.tiny_preprocessor, backbone=_base_.tiny_backbone
)
data_root = 'data/textures/'
test_pipeline = _base_.tiny_pipeline
images = dict(data_root=data_root, pipeline=test_pipeline)
loader = dict(num_workers=0, persistent_workers=False, dataset=images)
test_dataloader = loader
test_cfg = dict(bank_dataloader=loader)
