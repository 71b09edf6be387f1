# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = '../../../configs/moca_vit-b16_200e.py'

# The paper's Table 3: one round, 200 epochs.
model = dict(masking=dict(mask_ratios=(0.65,), decoder_mask_ratios=(0.45,)))
