# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = './moca_vit-b16_100e_one-round.py'

model = dict(codebook=dict(num_words=8192))
