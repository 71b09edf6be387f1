# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Mask R-CNN in the manner of ViTDet (arXiv:2203.16527): a simple pyramid of
# the ViT's last map, large-scale jitter at 1024 pixels, 100 epochs, batch 64.
# Unlike in ViTDet, all layers attend globally and positions are absolute, as
# in pretraining. Not in the paper of MOCA.
_base_ = [
    'mmdet::_base_/models/mask-rcnn_r50_fpn.py',
    # With this path MMEngine need not read all of mmdet's metafiles.
    'mmdet::_base_/../common/lsj-100e_coco-instance.py',
]

side = 1024  # of the crops; smaller ones are padded
norm_cfg = dict(type='mmpretrain.LN2d')

model = dict(
    type='mmmoca.CheckedDetector',
    detector='MaskRCNN',
    num_classes=80,  # of both heads
    # As in ViTDet, all images are padded to 1024 x 1024, in training and in
    # tests. None is larger.
    data_preprocessor=dict(pad_size_divisor=side),
    backbone=dict(
        _delete_=True,
        type='mmpretrain.VisionTransformer',
        arch='b',
        img_size=side,
        patch_size=16,
        out_type='featmap',
        out_indices=-1,
        final_norm=False,
        drop_path_rate=0.1,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='mmmoca-teacher://'
            'work_dirs/moca_vit-b16_200e/epoch_200.pth',
            prefix='backbone.',
        ),
    ),
    neck=[
        dict(
            type='mmmoca.ViTFeaturePyramid',
            in_channels=768,
            norm_cfg=norm_cfg,
        ),
        dict(
            type='ChannelMapper',
            in_channels=[768] * 4,
            out_channels=256,
            kernel_size=1,
            norm_cfg=norm_cfg,
            act_cfg=None,
        ),
        dict(
            type='ChannelMapper',
            in_channels=[256] * 4,
            out_channels=256,
            kernel_size=3,
            norm_cfg=norm_cfg,
            act_cfg=None,
            num_outs=5,
        ),
    ],
    rpn_head=dict(num_convs=2),
    roi_head=dict(
        bbox_head=dict(
            type='Shared4Conv1FCBBoxHead',
            conv_out_channels=256,
            norm_cfg=norm_cfg,
        ),
        mask_head=dict(norm_cfg=norm_cfg),
    ),
)
activation_checkpointing = [f'backbone.layers.{i}' for i in range(12)]

test_pipeline = [
    dict(step, scale=(side, side)) if step.type == 'Resize' else step
    for step in _base_.test_pipeline
]
train_dataloader = dict(
    sampler=dict(type='mmmoca.SeededSampler'),
    dataset=dict(
        dataset=dict(
            type='mmmoca.CheckedCocoDataset',
            pipeline=[
                dict(type='mmmoca.SeedTransforms'),
                *_base_.train_pipeline,
            ],
        )
    ),
)
val_dataloader = dict(
    dataset=dict(type='mmmoca.CheckedCocoDataset', pipeline=test_pipeline)
)
test_dataloader = val_dataloader

optim_wrapper = dict(
    _delete_=True,
    type='mmmoca.GPUMixedPrecisionOptimWrapper',
    dtype='float16',
    constructor='mmmoca.LayerDecayOptimWrapperConstructor',
    optimizer=dict(
        type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.1
    ),
    paramwise_cfg=dict(
        layer_decay_rate=0.7,
        norm_decay_mult=0.0,
        bias_decay_mult=0.0,
        flat_decay_mult=0.0,
    ),
)
# The data set is repeated 4 times, so that 25 epochs are 100.
param_scheduler = [
    dict(
        type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=250
    ),
    dict(type='MultiStepLR', by_epoch=True, milestones=[22, 24], gamma=0.1),
]

default_hooks = dict(
    checkpoint=dict(type='mmmoca.AtomicCheckpointHook', max_keep_ckpts=2),
    checkpoint_fit=dict(type='mmmoca.CheckpointFitHook'),
    step_log=dict(type='mmmoca.StepLogHook'),
    reproducibility=dict(type='mmmoca.ReproducibilityHook'),
    preemption=dict(type='mmmoca.PreemptionHook'),
    class_check=dict(type='mmmoca.ClassCheckHook'),
    num_class_check=dict(type='mmdet.NumClassCheckHook'),
)
