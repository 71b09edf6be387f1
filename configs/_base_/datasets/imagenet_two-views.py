# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The two views of the paper's appendix C.4, and the images for its k-NN.
_base_ = ['./imagenet_eval.py']

crop = dict(
    type='mmmoca.RandomResizedCrop', scale=224, crop_ratio_range=(0.2, 1.0)
)
jitter = dict(
    type='RandomApply',
    transforms=[
        dict(
            type='mmmoca.ColorJitter',
            brightness=0.4,
            contrast=0.4,
            saturation=0.2,
            hue=0.1,
        )
    ],
    prob=0.8,
)
grey = dict(type='mmmoca.RandomGrayscale', prob=0.2)
blur = dict(
    type='mmmoca.GaussianBlur',
    magnitude_range=(0.1, 2.0),
    magnitude_std='inf',
)
solarize = dict(type='Solarize', thr=128, prob=0.2)
flip = dict(type='RandomFlip', prob=0.5)
view_pipeline1 = [crop, jitter, grey, dict(blur, prob=1.0), flip]
view_pipeline2 = [crop, jitter, grey, dict(blur, prob=0.1), solarize, flip]
train_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    # 224 / (3 / 4 * 0.2)**0.5: no crop becomes smaller than its view.
    dict(type='mmmoca.LoadImage', reduce_to=579),
    dict(
        type='MultiView',
        transforms=[view_pipeline1, view_pipeline2],
        num_views=[1, 1],
    ),
    dict(type='PackInputs'),
]

train_dataloader = dict(
    batch_size=256,  # times 8 GPUs: 2048
    num_workers=8,
    persistent_workers=True,
    pin_memory=True,
    drop_last=True,
    sampler=dict(type='mmmoca.SeededSampler'),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='mmmoca.ImageFolder',
        data_root=_base_.imagenet,
        data_prefix='train',
        with_label=False,
        pipeline=train_pipeline,
    ),
)
val_dataloader = _base_.test_dataloader
