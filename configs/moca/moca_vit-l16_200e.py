# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The recipe of the paper for ViT-L/16 (Tables 9 and 10). The paper does not
# say which layer feeds the decoder; the authors' code takes the fourth before
# the last, for any depth.
_base_ = './moca_vit-b16_200e.py'

model = dict(backbone=dict(arch='l', tap_layer=20))
