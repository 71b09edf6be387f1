# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = './moca_vit-b16_100e_one-round.py'

model = dict(
    backbone=dict(tap_layer=None),
    neck=dict(condenser=False),
    head=dict(lambda_img=0.0),
)
