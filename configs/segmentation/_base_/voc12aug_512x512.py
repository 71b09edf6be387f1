# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# data_root has JPEGImages, SegmentationClass, ImageSets/Segmentation and, of
# the 10 582 images of trainaug, SegmentationClassAug with trainaug.txt.
data_root = 'data/VOCdevkit/VOC2012'
scale = (2048, 512)  # the longer side at most, the shorter side
crop_size = (512, 512)

train_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(
        type='RandomResize',
        scale=scale,
        ratio_range=(0.5, 2.0),
        keep_ratio=True,
    ),
    dict(type='RandomCrop', crop_size=crop_size, cat_max_ratio=0.75),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', _scope_='mmseg', scale=scale, keep_ratio=True),
    # After the resizing: the truth keeps its size.
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs', _scope_='mmseg'),
]

train_dataloader = dict(
    batch_size=8,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type='mmmoca.SeededSampler'),
    dataset=dict(
        type='PascalVOCDataset',
        _scope_='mmseg',
        data_root=data_root,
        data_prefix=dict(
            img_path='JPEGImages', seg_map_path='SegmentationClassAug'
        ),
        ann_file='ImageSets/Segmentation/trainaug.txt',
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='PascalVOCDataset',
        _scope_='mmseg',
        data_root=data_root,
        data_prefix=dict(
            img_path='JPEGImages', seg_map_path='SegmentationClass'
        ),
        ann_file='ImageSets/Segmentation/val.txt',
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader

val_evaluator = dict(type='IoUMetric', _scope_='mmseg', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
