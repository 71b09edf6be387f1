# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Views of the paper's appendix C.4; k-NN as in its appendix C.3.
dataset_type = 'mmmoca.ImageFolder'
data_root = 'data/imagenet/'  # train/<class>/*.JPEG, val/<class>/*.JPEG

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
    # 224 / (3 / 4 * 0.2)**0.5: no crop gets smaller than its view.
    dict(type='mmmoca.LoadImage', reduce_to=579),
    dict(
        type='MultiView',
        transforms=[view_pipeline1, view_pipeline2],
        num_views=[1, 1],
    ),
    dict(type='PackInputs'),
]
# MMPreTrain's own loader, which its inferencers know how to replace.
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='mmmoca.ResizeEdge',
        scale=256,
        edge='short',
        backend='pillow',
        interpolation='bicubic',
    ),
    dict(type='CenterCrop', crop_size=224),
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
        type=dataset_type,
        data_root=data_root,
        data_prefix='train',
        with_label=False,
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=256,
    num_workers=8,
    persistent_workers=True,
    pin_memory=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        data_prefix='val',
        pipeline=test_pipeline,
    ),
)
bank_dataloader = dict(
    batch_size=256,
    num_workers=8,
    pin_memory=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        data_prefix='train',
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader

val_evaluator = dict(type='mmmoca.KNNAccuracy')
test_evaluator = val_evaluator
val_cfg = dict(
    type='mmmoca.KNNValLoop',
    bank_dataloader=bank_dataloader,
    k=(10, 20),
    temperature=0.07,
    fp16=True,
)
test_cfg = dict(
    type='mmmoca.KNNTestLoop',
    bank_dataloader=bank_dataloader,
    k=(10, 20),
    temperature=0.07,
    fp16=True,
)
