# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = '../../../configs/moca_vit-b16_100e.py'

# The grey cells of the paper's Table 2: one round, 20 % of the patches
# predicted.
model = dict(masking=dict(mask_ratios=(0.65,), decoder_mask_ratios=(0.45,)))
