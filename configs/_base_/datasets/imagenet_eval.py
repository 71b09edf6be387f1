# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# For frozen features: the validation images, and the training images as a bank
# of neighbours.
_base_ = ['./imagenet.py']

bank_dataloader = dict(
    _base_.test_dataloader,
    dataset=dict(_base_.test_dataloader.dataset, data_prefix='train'),
)
