# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Low-shot classification, as in the paper's Table 5d: MSN's regression on the
# mean patch token before the final norm. (MSN uses [CLS] before that norm:
# model.backbone.out_type=cls_token model.neck=None.)
# tools/test.py configs/classification/lowshot_vit-b16_in1k.py CHECKPOINT
_base_ = [
    '../_base_/models/vit-b16_features.py',
    '../_base_/datasets/imagenet_eval.py',
    '../_base_/runtime.py',
]

model = dict(backbone=dict(final_norm=False))

test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='mmmoca.ResizeEdge',
        scale=256,
        edge='short',
        backend='pillow',
        interpolation='bilinear',
    ),
    dict(type='CenterCrop', crop_size=224),
    dict(type='PackInputs'),
]
test_dataloader = dict(dataset=dict(pipeline=test_pipeline))

# Lists that tools/dataset_converters/make_subset.py draws, or the public ones.
subset_root = 'data/imagenet/subsets/'
test_evaluator = dict(type='mmmoca.LowShotAccuracy')
test_cfg = dict(
    type='mmmoca.LowShotTestLoop',
    train_dataloader=dict(
        batch_size=256,
        num_workers=8,
        pin_memory=True,
        sampler=dict(type='DefaultSampler', shuffle=False),
        collate_fn=dict(type='default_collate'),
        dataset=dict(
            type='mmmoca.ImageFolder',
            data_root=_base_.imagenet,
            data_prefix='train',
            pipeline=test_pipeline,
        ),
    ),
    subsets={
        '1shot': [f'{subset_root}1shot_set{i}.txt' for i in range(3)],
        '2shot': [f'{subset_root}2shot_set{i}.txt' for i in range(3)],
        '5shot': [f'{subset_root}5shot_set{i}.txt' for i in range(3)],
        '1percent': [f'{subset_root}1percent.txt'],
    },
    regularization=0.1,
)

# In seconds. Processes wait for the slowest regression, which runs on a CPU.
env_cfg = dict(dist_cfg=dict(timeout=7200))
