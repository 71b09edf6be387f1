# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = './table3_assignments.py'

model = dict(backbone=dict(tap_layer=None), neck=dict(condenser=False))
