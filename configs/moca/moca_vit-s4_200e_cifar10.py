# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Pretraining on CIFAR-10, which is downloaded to data/cifar10. Not in the
# paper: this is its recipe at 32 pixels (8 x 8 patches, one border row), with
# batches of 512 on one GPU.
_base_ = './moca_vit-b16_200e.py'

model = dict(
    data_preprocessor=dict(
        mean=[125.307, 122.961, 113.8575],
        std=[51.5865, 50.847, 51.255],
        to_rgb=True,
    ),
    backbone=dict(arch='deit-s', img_size=32, patch_size=4),
    codebook=dict(num_words=1024, border=1),
    neck=dict(embed_dims=384, num_heads=12),
)

crop = dict(_base_.crop, scale=32)
jitter, grey, flip = _base_.jitter, _base_.grey, _base_.flip
blur = dict(_base_.blur, magnitude_range=(0.1, 1.0))
view_pipeline1 = [crop, jitter, grey, dict(blur, prob=0.5), flip]
view_pipeline2 = [
    crop,
    jitter,
    grey,
    dict(blur, prob=0.1),
    _base_.solarize,
    flip,
]
# mmpretrain's CIFAR10 gives RGB, but the transforms expect BGR.
to_bgr = dict(type='PILToNumpy', to_bgr=True)
train_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    to_bgr,
    dict(
        type='MultiView',
        transforms=[view_pipeline1, view_pipeline2],
        num_views=[1, 1],
    ),
    dict(type='PackInputs'),
]
test_pipeline = [to_bgr, dict(type='PackInputs')]

train_dataloader = dict(
    batch_size=512,
    dataset=dict(
        _delete_=True,
        type='CIFAR10',
        data_root='data/cifar10',
        split='train',
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    dataset=dict(
        _delete_=True,
        type='CIFAR10',
        data_root='data/cifar10',
        split='test',
        pipeline=test_pipeline,
    )
)
bank_dataloader = dict(
    batch_size=256,
    num_workers=8,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='CIFAR10',
        data_root='data/cifar10',
        data_prefix='',
        split='train',
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_cfg = dict(bank_dataloader=bank_dataloader)
test_cfg = dict(bank_dataloader=bank_dataloader)

optim_wrapper = dict(optimizer=dict(lr=1.5e-4 * 512 / 256))
auto_scale_lr = dict(enable=False, base_batch_size=512)
