# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The recipe of the paper for 100 epochs.
_base_ = './moca_vit-b16_200e.py'

train_cfg = dict(max_epochs=100)
