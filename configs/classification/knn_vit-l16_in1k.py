# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Weighted k-NN of ViT-L/16.
_base_ = 'knn_vit-b16_in1k.py'

model = dict(backbone=dict(arch='l'))
