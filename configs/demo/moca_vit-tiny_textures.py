# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The demo: pretraining of a small ViT on small grey images, in minutes on two
# CPU cores. It differs from the paper's recipe where a run of 1400 steps needs
# other settings.
_base_ = ['../_base_/moca_runtime.py', '../_base_/own_images.py']

textures = 'data/textures/'  # tools/drawn_sets/make_textures.py

model = dict(
    type='mmmoca.MOCA',
    data_preprocessor=dict(
        type='mmmoca.ViewsDataPreprocessor',
        mean=[127.5, 127.5, 127.5],
        std=[63.75, 63.75, 63.75],
        to_rgb=True,
    ),
    backbone=dict(
        type='mmmoca.MOCAViT',
        arch=dict(
            embed_dims=128, num_layers=4, num_heads=4, feedforward_channels=512
        ),
        img_size=48,
        patch_size=8,
        tap_layer=3,
    ),
    codebook=dict(
        type='mmmoca.OnlineCodebook',
        num_words=256,
        num_new_words=16,
        border=1,
        # Sharper than the paper's 10, which separates few of these tokens.
        inv_delta=30.0,
    ),
    neck=dict(
        type='mmmoca.CondenserNeck', embed_dims=96, depth=1, num_heads=4
    ),
    head=dict(type='mmmoca.AssignmentHead', lambda_img=0.75, kappa=3.0),
    masking=dict(mask_ratios=(0.55,), decoder_mask_ratios=(0.35,)),
)

crop = dict(
    type='mmmoca.RandomResizedCrop', scale=48, crop_ratio_range=(0.3, 1.0)
)
jitter = dict(
    type='RandomApply',
    transforms=[
        dict(
            type='mmmoca.ColorJitter',
            brightness=0.4,
            contrast=0.4,
            saturation=0.0,
            hue=0.0,
        )
    ],
    prob=0.8,
)
blur = dict(
    type='mmmoca.GaussianBlur',
    magnitude_range=(0.1, 1.0),
    magnitude_std='inf',
)
flip = dict(type='RandomFlip', prob=0.5)
view_pipeline1 = [crop, jitter, dict(blur, prob=0.5), flip]
view_pipeline2 = [crop, jitter, dict(blur, prob=0.1), flip]
train_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    # 48 / (3 / 4 * 0.3)**0.5: no crop becomes smaller than its view.
    dict(type='mmmoca.LoadImage', reduce_to=102),
    dict(
        type='MultiView',
        transforms=[view_pipeline1, view_pipeline2],
        num_views=[1, 1],
    ),
    dict(type='PackInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='mmmoca.ResizeEdge', scale=48, edge='short'),
    dict(type='CenterCrop', crop_size=48),
    dict(type='PackInputs'),
]

train_dataloader = dict(
    batch_size=32,
    num_workers=1,
    persistent_workers=True,
    drop_last=True,
    sampler=dict(type='mmmoca.SeededSampler', infinite=True),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='mmmoca.ImageFolder',
        data_root=textures,
        data_prefix='train',
        with_label=False,
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=250,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='mmmoca.ImageFolder',
        data_root=textures,
        data_prefix='val',
        pipeline=test_pipeline,
    ),
)
bank_dataloader = dict(
    val_dataloader,
    dataset=dict(val_dataloader['dataset'], data_prefix='train'),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='mmmoca.KNNAccuracy')
test_evaluator = val_evaluator
val_cfg = dict(
    type='mmmoca.KNNValLoop',
    bank_dataloader=bank_dataloader,
    k=20,
    temperature=0.07,
    baselines=True,
)
test_cfg = dict(
    type='mmmoca.KNNTestLoop',
    bank_dataloader=bank_dataloader,
    k=20,
    temperature=0.07,
)

optim_wrapper = dict(
    type='mmmoca.MixedPrecisionOptimWrapper',
    # bfloat16 if the processor supports it, else float32, which is then
    # faster.
    dtype='auto',
    constructor='mmmoca.MOCAOptimWrapperConstructor',
    optimizer=dict(
        type='AdamW',
        lr=2e-3,
        betas=(0.9, 0.999),
        weight_decay=0.05,
        fused=True,
    ),
    clip_grad=dict(max_norm=0.1),
    paramwise_cfg=dict(prototype_lr=2e-3, prototype_weight_decay=0.05),
)
param_scheduler = dict(
    type='mmmoca.WarmupCosineLR', warmup=0.1, period=1.25, by_epoch=False
)
train_cfg = dict(type='IterBasedTrainLoop', max_iters=1400, val_interval=280)
auto_scale_lr = dict(enable=False, base_batch_size=32)

default_hooks = dict(
    logger=dict(interval=35, log_metric_by_epoch=False),
    checkpoint=dict(by_epoch=False, interval=280, max_keep_ckpts=1),
    teacher_ema=dict(momentum=0.9, end_momentum=0.99),
)
log_processor = dict(by_epoch=False)
