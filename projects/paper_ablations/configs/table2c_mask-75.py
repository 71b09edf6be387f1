# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = './moca_vit-b16_100e_one-round.py'

model = dict(masking=dict(mask_ratios=(0.75,), decoder_mask_ratios=(0.55,)))
