# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Weighted k-NN as in the paper's appendix C.3, in fp32, at each temperature T
# of the authors' code. The authors quote their figures at T = 0.04:
# tools/test.py configs/classification/knn_vit-b16_in1k.py CHECKPOINT
_base_ = [
    '../_base_/models/vit-b16_features.py',
    '../_base_/datasets/imagenet_eval.py',
    '../_base_/runtime.py',
]

test_evaluator = dict(type='mmmoca.KNNAccuracy')
test_cfg = dict(
    type='mmmoca.KNNTestLoop',
    bank_dataloader=_base_.bank_dataloader,
    k=(10, 20),
    temperature=(0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.1, 0.12, 0.15, 0.2),
)
