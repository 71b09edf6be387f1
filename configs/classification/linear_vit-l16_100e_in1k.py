# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Linear probing of a frozen ViT-L/16.
_base_ = './linear_vit-b16_100e_in1k.py'

model = dict(backbone=dict(arch='l'))
