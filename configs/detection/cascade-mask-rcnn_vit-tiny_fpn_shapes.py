# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# A check of all parts of detection, in minutes on two CPU cores: a small
# network, without pretraining, learns the images of a small drawn set by
# heart. It is validated on its training images.
#   python tools/drawn_sets/make_shapes_coco.py data/shapes \
#       --train 24 --val 8 --size 128
_base_ = [
    './cascade-mask-rcnn_moca-vit-b16_fpn_1x_own-coco.py',
    '../_base_/models/vit-tiny.py',
]

data_root = 'data/shapes/'
max_epochs = 250

model = dict(
    backbone=dict(
        _base_.tiny_backbone,
        img_size=128,
        patch_size=16,
        out_indices=[0, 1, 2, 3],
        drop_path_rate=0.0,
        init_cfg=None,
    ),
    neck=[
        dict(_base_.pyramid, in_channels=128),
        # Without pretraining, nothing else limits the scale of the features.
        dict(
            type='FPN',
            in_channels=[128] * 4,
            out_channels=32,
            num_outs=5,
            norm_cfg=dict(type='GN', num_groups=8),
        ),
    ],
    rpn_head=dict(in_channels=32, feat_channels=32),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=32),
        bbox_head=[
            dict(
                head,
                in_channels=32,
                conv_out_channels=32,
                fc_out_channels=128,
            )
            for head in _base_.model.roi_head.bbox_head
        ],
        mask_roi_extractor=dict(out_channels=32),
        mask_head=dict(in_channels=32, conv_out_channels=32),
    ),
    train_cfg=dict(
        rpn_proposal=dict(nms_pre=100, max_per_img=50),
        rcnn=[
            dict(stage, sampler=dict(stage.sampler, num=32))
            for stage in _base_.model.train_cfg.rcnn
        ],
    ),
    test_cfg=dict(rpn=dict(nms_pre=100, max_per_img=50)),
)
activation_checkpointing = None

resize = dict(type='Resize', scale=(128, 128), keep_ratio=True)
train_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    resize,
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    resize,
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(
        type='PackDetInputs',
        meta_keys=(
            'img_id',
            'img_path',
            'ori_shape',
            'img_shape',
            'scale_factor',
        ),
    ),
]
train_dataloader = dict(
    batch_size=4,
    num_workers=0,
    dataset=dict(data_root=data_root, pipeline=train_pipeline),
)
val_dataloader = dict(
    num_workers=0,
    dataset=dict(
        data_root=data_root,
        ann_file='annotations/train.json',
        data_prefix=dict(img='train/'),
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=data_root + 'annotations/train.json')
test_evaluator = val_evaluator

train_cfg = dict(max_epochs=max_epochs, val_interval=max_epochs // 5)
optim_wrapper = dict(
    optimizer=dict(lr=1e-3),
    paramwise_cfg=dict(layer_decay_rate=1.0),
    clip_grad=dict(max_norm=35.0),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=100),
    # The schedule ends with the run.
    dict(type='CosineAnnealingLR', by_epoch=True, convert_to_iter_based=True),
]
auto_scale_lr = dict(enable=False, base_batch_size=4)
default_hooks = dict(
    logger=dict(interval=30), checkpoint=dict(interval=max_epochs)
)
