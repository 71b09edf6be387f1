# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The settings that the data sets for segmentation share. A child config names
# a data set.
sides = (2048, 512)  # limit of the longer side, the shorter side

train_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    dict(type='mmmoca.LoadImage'),  # skips unreadable images
    dict(type='LoadAnnotations'),
    dict(
        type='RandomResize',
        scale=sides,
        ratio_range=(0.5, 2.0),
        keep_ratio=True,
    ),
    dict(type='RandomCrop', crop_size=(512, 512), cat_max_ratio=0.75),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', _scope_='mmseg', scale=sides, keep_ratio=True),
    # After the resizing, so that the true mask keeps its size.
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs', _scope_='mmseg'),
]

train_dataloader = dict(
    batch_size=8,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type='mmmoca.SeededSampler'),
    dataset=dict(_scope_='mmseg', pipeline=train_pipeline),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(_scope_='mmseg', pipeline=test_pipeline),
)
test_dataloader = val_dataloader

val_evaluator = dict(type='IoUMetric', _scope_='mmseg', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
