# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# data_root has leftImg8bit/{train,val} and gtFine/{train,val} with
# *_gtFine_labelTrainIds.png, which csCreateTrainIdLabelImgs makes.
data_root = 'data/cityscapes/'
scale = (2048, 1024)  # width, height
crop_size = (768, 768)

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
        type='CityscapesDataset',
        _scope_='mmseg',
        data_root=data_root,
        ann_file='',  # a split: names without suffix, one a line
        data_prefix=dict(
            img_path='leftImg8bit/train', seg_map_path='gtFine/train'
        ),
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='CityscapesDataset',
        _scope_='mmseg',
        data_root=data_root,
        data_prefix=dict(
            img_path='leftImg8bit/val', seg_map_path='gtFine/val'
        ),
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader

val_evaluator = dict(type='IoUMetric', _scope_='mmseg', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
