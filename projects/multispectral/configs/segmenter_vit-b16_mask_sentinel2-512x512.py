# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Segmentation of images with 13 bands: data_root/images/{train,val}/NAME.tif
# and data_root/masks/{train,val}/NAME.png, with the index of the class of each
# pixel. The bands, mean and std are those of pretraining.
_base_ = [
    '../../../configs/segmentation/'
    'segmenter_moca-vit-b16_mask_own-masks-512x512.py',
    './_base_/sentinel2.py',
]

channels = 13
root = 'data/sentinel2_masks'

model = dict(
    data_preprocessor=dict(
        type='mmmoca.SegBandsPreprocessor',
        mean=_base_.bands_mean,
        std=_base_.bands_std,
        bgr_to_rgb=False,
    ),
    backbone=dict(
        in_channels=channels,
        init_cfg=dict(
            checkpoint='mmmoca-teacher://'
            'work_dirs/moca_vit-b16_sentinel2/epoch_200.pth'
        ),
    ),
)

load = dict(type='mmmoca.LoadBands', channels=channels)
train_pipeline = _base_.train_pipeline
train_pipeline[1] = load
train_pipeline[-2] = dict(
    type='mmmoca.BandJitter', brightness=0.4, contrast=0.4, per_band=False
)
test_pipeline = _base_.test_pipeline
test_pipeline[0] = dict(load, skip_unreadable=False)

train_dataloader = dict(
    dataset=dict(data_root=root, img_suffix='.tif', pipeline=train_pipeline)
)
val_dataloader = dict(
    dataset=dict(data_root=root, img_suffix='.tif', pipeline=test_pipeline)
)
test_dataloader = val_dataloader
