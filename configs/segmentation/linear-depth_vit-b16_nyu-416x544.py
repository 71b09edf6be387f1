# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Depth on NYUv2 with a linear layer on frozen patches, as DINOv3 does it:
# 38 400 steps of 16 crops of 416 x 544 pixels; at test time Eigen's crop, and
# the mean of an image and its mirror image. In DINOv3's recipe training crops
# leave out the frame of the images ([45:472, 43:608]), half of them get
# another gamma, beta1 changes with the learning rate, and the loss has no
# variance term in the first 100 steps. Here crops may reach into the frame,
# all change brightness, contrast and colours a little, beta1 is 0.9, and the
# variance term counts from the first step.
#   tools/dist_train.sh configs/segmentation/THIS.py 8 --cfg-options \
#       model.backbone.init_cfg.checkpoint=mmmoca-teacher://CHECKPOINT
# data_root contains images/{train,test} and annotations/{train,test}. The
# annotations are PNG files of 16 bits, in millimetres.
_base_ = [
    './_base_/vit-b16.py',
    './_base_/data_512x512.py',
    './_base_/runtime_by_iter.py',
]

crop_size = (416, 544)  # height, width

model = dict(
    type='DepthEstimator',
    data_preprocessor=dict(seg_pad_val=0, size=crop_size),
    backbone=dict(img_size=crop_size, frozen_stages=12),
    decode_head=dict(type='mmmoca.LinearDepthHead', in_channels=768),
    # One window is the whole image of 480 x 640; its mirror image is another.
    test_cfg=dict(mode='slide_flip', crop_size=(480, 640), stride=(480, 640)),
)

meta_keys = ('img_path', 'depth_map_path', 'ori_shape', 'img_shape')
train_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    dict(type='mmmoca.LoadImage'),
    dict(type='LoadDepthAnnotation', depth_rescale_factor=1e-3),
    # Pixels that the rotation uncovers get depth 0, which means unknown.
    dict(type='RandomRotate', prob=0.5, degree=2.5, pad_val=0, seg_pad_val=0),
    dict(type='RandomFlip', prob=0.5),
    dict(type='RandomCrop', crop_size=crop_size),
    dict(
        type='PhotoMetricDistortion',
        brightness_delta=32,
        contrast_range=(0.75, 1.25),
        saturation_range=(0.9, 1.1),
        hue_delta=1,
    ),
    dict(type='PackSegInputs', meta_keys=meta_keys),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadDepthAnnotation', depth_rescale_factor=1e-3),
    dict(type='PackSegInputs', meta_keys=meta_keys),
]
dataset = dict(type='NYUDataset', data_root='data/nyu')
train_dataloader = dict(
    batch_size=2,  # times 8 GPUs
    sampler=dict(infinite=True),
    dataset=dict(
        data_prefix=dict(
            img_path='images/train', depth_map_path='annotations/train'
        ),
        pipeline=train_pipeline,
        **dataset,
    ),
)
val_dataloader = dict(
    dataset=dict(
        test_mode=True,
        data_prefix=dict(
            img_path='images/test', depth_map_path='annotations/test'
        ),
        pipeline=test_pipeline,
        **dataset,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(
    _delete_=True,
    type='DepthMetric',
    _scope_='mmseg',
    min_depth_eval=0.001,
    max_depth_eval=10.0,
    crop_type='nyu_crop',  # Eigen's
)
test_evaluator = val_evaluator

optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(
        type='AdamW', lr=3e-4, betas=(0.9, 0.99), weight_decay=1e-4
    ),
    clip_grad=dict(max_norm=35),
)
# A cosine over the whole run, times a warm-up over its first third.
param_scheduler = [
    dict(
        type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=12800
    ),
    dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=False),
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=38400, val_interval=4800)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
default_hooks = dict(
    checkpoint=dict(interval=4800, save_best='rmse', rule='less')
)
auto_scale_lr = dict(enable=False, base_batch_size=16)
