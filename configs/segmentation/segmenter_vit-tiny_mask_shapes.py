# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# A check of all parts of segmentation, in minutes on two CPU cores: a small
# network, without pretraining, learns the masks of a small drawn set.
#   python tools/drawn_sets/make_shapes_coco.py data/shapes \
#       --train 24 --val 8 --size 128
_base_ = [
    './segmenter_moca-vit-b16_mask_own-masks-512x512.py',
    '../_base_/models/vit-tiny.py',
]

root = 'data/shapes/'
names = ('background', 'circle', 'cross', 'square', 'triangle')
palette = [
    [235, 235, 235],
    [230, 120, 40],
    [40, 160, 90],
    [60, 110, 220],
    [210, 60, 140],
]
size = (96, 96)

model = dict(
    data_preprocessor=dict(size=size),
    backbone=dict(
        _base_.tiny_backbone,
        img_size=size,
        drop_path_rate=0.0,
        init_cfg=None,
    ),
    decode_head=dict(
        in_channels=128,
        channels=128,
        embed_dims=128,
        num_heads=4,
        drop_rate=0.0,
        attn_drop_rate=0.0,
        num_classes=len(names),
    ),
    test_cfg=dict(crop_size=size, stride=(64, 64)),
)

# RandomResize and RandomCrop, then Resize in the test pipeline.
train_pipeline = _base_.train_pipeline
train_pipeline[3].update(scale=(128, 96), ratio_range=(1.0, 1.0))
train_pipeline[4].crop_size = size
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = (128, 96)

shapes = dict(data_root=root, metainfo=dict(classes=names, palette=palette))
train_dataloader = dict(
    batch_size=4,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(
        data_prefix=dict(img_path='train', seg_map_path='masks/train'),
        pipeline=train_pipeline,
        **shapes,
    ),
)
# Validation uses the training images, like the config for detection.
val_dataloader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(
        data_prefix=dict(img_path='train', seg_map_path='masks/train'),
        pipeline=test_pipeline,
        **shapes,
    ),
)
test_dataloader = val_dataloader

train_cfg = dict(max_epochs=150, val_interval=50)
# Without pretraining SGD learns only the background.
optim_wrapper = dict(
    optimizer=dict(_delete_=True, type='AdamW', lr=1e-4, weight_decay=0.05)
)
default_hooks = dict(logger=dict(interval=30), checkpoint=dict(interval=50))
