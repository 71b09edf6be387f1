# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = 'lowshot_vit-b16_in1k.py'

model = dict(backbone=dict(arch='l'))
