# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Your own masks:
#   data_root/images/{train,val}/NAME.jpg
#   data_root/masks/{train,val}/NAME.png   one channel: the index of the class
#                                          of each pixel, 255 to leave it out
# Subfolders are fine if both trees have them. Other suffixes: img_suffix and
# seg_map_suffix of the data sets.
_base_ = [
    './_base_/segmenter_moca-vit-b16.py',
    './_base_/schedule_216e.py',
    './_base_/runtime.py',
]

data_root = 'data/my_masks'
classes = ('background', 'object')
palette = [[60, 60, 60], [230, 120, 40]]  # RGB, a colour for each class
scale = (2048, 512)  # the longer side at most, the shorter side
crop_size = (512, 512)

model = dict(
    data_preprocessor=dict(size=crop_size),
    backbone=dict(img_size=crop_size),
    decode_head=dict(num_classes=len(classes)),
    test_cfg=dict(crop_size=crop_size, stride=(341, 341)),
)

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
    dict(type='RandomCrop', crop_size=crop_size, cat_max_ratio=0.95),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', _scope_='mmseg', scale=scale, keep_ratio=True),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs', _scope_='mmseg'),
]
dataset = dict(
    type='BaseSegDataset',
    _scope_='mmseg',
    data_root=data_root,
    metainfo=dict(classes=classes, palette=palette),
    img_suffix='.jpg',
    seg_map_suffix='.png',
)
train_dataloader = dict(
    batch_size=8,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type='mmmoca.SeededSampler'),
    dataset=dict(
        data_prefix=dict(img_path='images/train', seg_map_path='masks/train'),
        pipeline=train_pipeline,
        **dataset,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        data_prefix=dict(img_path='images/val', seg_map_path='masks/val'),
        pipeline=test_pipeline,
        **dataset,
    ),
)
test_dataloader = val_dataloader

val_evaluator = dict(type='IoUMetric', _scope_='mmseg', iou_metrics=['mIoU'])
test_evaluator = val_evaluator

train_cfg = dict(max_epochs=100)
