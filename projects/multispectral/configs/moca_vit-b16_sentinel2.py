# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Pretraining on images with 13 bands, in one folder or any tree of folders.
# The settings and rules are those of moca_vit-b16_own-images; mean and std are
# in _base_/sentinel2.py.
_base_ = [
    '../../../configs/moca_vit-b16_own-images.py',
    './_base_/sentinel2.py',
]

channels = 13
extensions = ['.npy', '.png', '.tif', '.tiff']

model = dict(
    data_preprocessor=dict(
        mean=_base_.bands_mean,
        std=_base_.bands_std,
        to_rgb=False,
    ),
    backbone=dict(in_channels=channels),
)

load = dict(type='mmmoca.LoadBands', channels=channels)
jitter = dict(
    type='RandomApply',
    transforms=[
        # The light changes all bands alike; sensors differ a little in each
        # band.
        dict(
            type='mmmoca.BandJitter',
            brightness=0.4,
            contrast=0.4,
            per_band=False,
        ),
        dict(type='mmmoca.BandJitter', gain=0.05, noise=0.05),
    ],
    prob=0.8,
)
crop, blur = _base_.crop, _base_.blur
# Seen from above, no direction is up.
flip = dict(
    type='RandomFlip',
    prob=[0.25, 0.25, 0.25],
    direction=['horizontal', 'vertical', 'diagonal'],
)
view_pipeline1 = [crop, jitter, dict(blur, prob=1.0), flip]
view_pipeline2 = [crop, jitter, dict(blur, prob=0.1), flip]
train_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    load,
    dict(
        type='MultiView',
        transforms=[view_pipeline1, view_pipeline2],
        num_views=[1, 1],
    ),
    dict(type='PackInputs'),
]
test_pipeline = [
    dict(load, skip_unreadable=False),
    dict(type='mmmoca.ResizeBands', scale=256, interpolation='bicubic'),
    dict(type='CenterCrop', crop_size=224),
    dict(type='PackInputs'),
]

train_dataloader = dict(
    dataset=dict(extensions=extensions, pipeline=train_pipeline)
)
# For k-NN. knn_root has images of the same kind, in class folders.
labelled = dict(dataset=dict(extensions=extensions, pipeline=test_pipeline))
val_dataloader = labelled
test_dataloader = labelled
val_cfg = dict(bank_dataloader=labelled)
test_cfg = dict(bank_dataloader=labelled)
