# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The base of the COCO configs: backbone, pyramid, data, schedule. The authors
# of MOCA released no detection code. This follows the paper (section 4.4 and
# Table 7) and iBOT's recipe, which the paper follows, with parts of mmdet.
_base_ = [
    'mmdet::_base_/datasets/coco_instance.py',
    'mmdet::_base_/default_runtime.py',
]

backbone = dict(
    type='mmpretrain.VisionTransformer',
    arch='b',
    # The grid of the stored positions. Images may have any size.
    img_size=(672, 1088),
    patch_size=16,
    out_type='featmap',
    out_indices=[3, 5, 7, 11],
    final_norm=False,
    drop_path_rate=0.2,
    init_cfg=dict(
        type='Pretrained',
        # After mmmoca-teacher:// write any file that
        # docs/guides/checkpoints.md lists: a checkpoint of a pretraining run,
        # of the authors' release, of DINO, iBOT, MAE, ...
        checkpoint='mmmoca-teacher://'
        'work_dirs/moca_vit-b16_200e/epoch_200.pth',
        prefix='backbone.',
    ),
)
pyramid = dict(
    type='mmmoca.ViTFeaturePyramid',
    in_channels=768,
    norm_cfg=dict(type='SyncBN'),
)
# Recompute activations in the backward pass, to save memory.
activation_checkpointing = [f'backbone.layers.{i}' for i in range(12)]

short_sides = [(side, 1333) for side in range(480, 801, 32)]
train_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    dict(type='LoadImageFromFile', backend_args=None),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomChoice',
        transforms=[
            [
                dict(
                    type='RandomChoiceResize',
                    scales=short_sides,
                    keep_ratio=True,
                )
            ],
            [
                dict(
                    type='RandomChoiceResize',
                    scales=[(400, 1333), (500, 1333), (600, 1333)],
                    keep_ratio=True,
                ),
                dict(
                    type='RandomCrop',
                    crop_type='absolute_range',
                    crop_size=(384, 600),
                    allow_negative_crop=True,
                ),
                dict(
                    type='RandomChoiceResize',
                    scales=short_sides,
                    keep_ratio=True,
                ),
            ],
        ],
    ),
    dict(type='PackDetInputs'),
]
# 8 GPUs x 2 images.
train_dataloader = dict(
    sampler=dict(type='mmmoca.SeededSampler'),
    batch_sampler=dict(
        type='mmmoca.ResumableBatchSampler',
        batch_sampler=dict(type='mmdet.AspectRatioBatchSampler'),
    ),
    dataset=dict(type='mmmoca.CheckedCocoDataset', pipeline=train_pipeline),
)
val_dataloader = dict(dataset=dict(type='mmmoca.CheckedCocoDataset'))
test_dataloader = dict(dataset=dict(type='mmmoca.CheckedCocoDataset'))

train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=12, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='mmmoca.GPUMixedPrecisionOptimWrapper',
    dtype='float16',
    constructor='mmmoca.LayerDecayOptimWrapperConstructor',
    optimizer=dict(
        type='AdamW',
        lr=2e-4,  # the paper's; iBOT's code has 1e-4
        betas=(0.9, 0.999),
        weight_decay=0.05,
    ),
    paramwise_cfg=dict(
        layer_decay_rate=0.75,
        norm_decay_mult=0.0,
        bias_decay_mult=0.0,
        flat_decay_mult=0.0,
    ),
)
param_scheduler = [
    dict(
        type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=500
    ),
    dict(type='MultiStepLR', by_epoch=True, milestones=[8, 11], gamma=0.1),
]
auto_scale_lr = dict(enable=False, base_batch_size=16)

default_hooks = dict(
    checkpoint=dict(type='mmmoca.AtomicCheckpointHook', max_keep_ckpts=2),
    checkpoint_fit=dict(type='mmmoca.CheckpointFitHook'),
    step_log=dict(type='mmmoca.StepLogHook'),
    reproducibility=dict(type='mmmoca.ReproducibilityHook'),
    preemption=dict(type='mmmoca.PreemptionHook'),
    class_check=dict(type='mmmoca.ClassCheckHook'),
    num_class_check=dict(type='mmdet.NumClassCheckHook'),
)
