# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Linear probing of a ViT-S/16 on Cityscapes. Not in the paper.
_base_ = [
    './segmenter_moca-vit-b16_linear_cityscapes-768x768.py',
    '../_base_/models/vit-s16.py',
]

model = dict(backbone=_base_.s16_backbone, decode_head=_base_.s16_head)
