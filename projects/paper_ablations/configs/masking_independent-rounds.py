# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = '../../../configs/moca_vit-b16_100e.py'

model = dict(masking=dict(complementary=False))
