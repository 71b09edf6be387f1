# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Segmentation with your own masks and a ViT-S/16. Not in the paper.
_base_ = [
    './segmenter_moca-vit-b16_mask_own-masks-512x512.py',
    '../_base_/models/vit-s16.py',
]

model = dict(backbone=_base_.s16_backbone, decode_head=_base_.s16_mask_head)
