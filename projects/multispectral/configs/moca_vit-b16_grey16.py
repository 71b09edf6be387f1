# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Pretraining on grey images of 16 bits, such as X-rays, with one channel.
# tools/dataset_converters/band_statistics.py prints the mean and std of your
# images.
_base_ = './moca_vit-b16_sentinel2.py'

channels = 1

model = dict(
    data_preprocessor=dict(mean=[2586.99], std=[1512.34]),
    backbone=dict(in_channels=channels),
)

flip = dict(type='RandomFlip', prob=0.5)  # what is up stays up
train_pipeline = _base_.train_pipeline
train_pipeline[1].channels = channels
train_pipeline[2].transforms[0][-1] = flip
train_pipeline[2].transforms[1][-1] = flip
test_pipeline = _base_.test_pipeline
test_pipeline[0].channels = channels

train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
labelled = dict(dataset=dict(pipeline=test_pipeline))
val_dataloader = labelled
test_dataloader = labelled
val_cfg = dict(bank_dataloader=labelled)
test_cfg = dict(bank_dataloader=labelled)
