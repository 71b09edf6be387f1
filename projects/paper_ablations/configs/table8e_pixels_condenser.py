# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = './moca_vit-b16_100e_one-round.py'

custom_imports = dict(imports=['projects.paper_ablations.targets'])
model = dict(
    neck=dict(depth=4),
    head=dict(
        type='mmmoca.PixelHead', patch_size=16, condenser=True, lambda_img=0.0
    ),
)
