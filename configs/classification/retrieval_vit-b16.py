# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Similar images by [AVG], for mmpretrain's ImageRetrievalInferencer, which
# says what to search. It has nothing to train or test; k-NN accuracy is
# knn_vit-b16_in1k.py.
_base_ = [
    '../_base_/models/vit-b16_features.py',
    '../_base_/datasets/imagenet_eval.py',
    '../_base_/runtime.py',
]

model = dict(type='mmmoca.BackboneRetriever')
