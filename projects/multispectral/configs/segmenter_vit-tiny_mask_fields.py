# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Segmentation of the fields of projects/multispectral/make_fields.py, with the
# backbone of moca_vit-tiny_fields.py.
_base_ = [
    './segmenter_vit-b16_mask_sentinel2-512x512.py',
    '../../../configs/_base_/models/vit-tiny.py',
]

root = 'data/fields'
names = ('crop', 'forest', 'grass', 'soil', 'urban', 'water')
palette = [
    [230, 200, 60],
    [30, 100, 40],
    [130, 200, 80],
    [150, 100, 60],
    [160, 160, 170],
    [40, 90, 200],
]
size = (48, 48)

model = dict(
    data_preprocessor=dict(size=size),
    backbone=dict(
        _base_.tiny_backbone,
        img_size=size,
        init_cfg=dict(
            checkpoint='mmmoca-teacher://'
            'work_dirs/moca_vit-tiny_fields/epoch_20.pth'
        ),
    ),
    decode_head=dict(
        in_channels=128,
        channels=128,
        embed_dims=128,
        num_heads=4,
        num_classes=len(names),
    ),
    test_cfg=dict(_delete_=True, mode='whole'),
)

train_pipeline = _base_.train_pipeline
train_pipeline[3].scale = size
train_pipeline[4].crop_size = size
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = size

fields = dict(data_root=root, metainfo=dict(classes=names, palette=palette))
train_dataloader = dict(
    batch_size=16,
    num_workers=1,
    dataset=dict(
        data_prefix=dict(img_path='train', seg_map_path='masks/train'),
        pipeline=train_pipeline,
        **fields,
    ),
)
val_dataloader = dict(
    num_workers=1,
    dataset=dict(
        data_prefix=dict(img_path='val', seg_map_path='masks/val'),
        pipeline=test_pipeline,
        **fields,
    ),
)
test_dataloader = val_dataloader

train_cfg = dict(max_epochs=4)
