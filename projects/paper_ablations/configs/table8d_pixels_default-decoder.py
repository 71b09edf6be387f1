# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = './moca_vit-b16_100e_one-round.py'

custom_imports = dict(imports=['projects.paper_ablations.targets'])
model = dict(
    backbone=dict(tap_layer=None),
    neck=dict(condenser=False, depth=4),
    head=dict(type='mmmoca.PixelHead', patch_size=16, lambda_img=0.0),
)
