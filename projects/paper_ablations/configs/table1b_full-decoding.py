# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = './moca_vit-b16_100e_one-round.py'

# All masked patches are predicted.
model = dict(masking=dict(decoder_mask_ratios=(0.0,)))
