# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Low-shot classification with ViT-L/16.
_base_ = 'lowshot_vit-b16_in1k.py'

model = dict(backbone=dict(arch='l'))
