# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# ImageNet's validation images, whole and without augmentation.
imagenet = 'data/imagenet/'  # train/<class>/*.JPEG, val/<class>/*.JPEG

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

test_dataloader = dict(
    batch_size=256,
    num_workers=8,
    persistent_workers=True,
    pin_memory=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='mmmoca.ImageFolder',
        data_root=imagenet,
        data_prefix='val',
        pipeline=test_pipeline,
    ),
)
