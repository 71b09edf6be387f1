# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Fine-tuning of a whole ViT-B/16 (the paper's appendix, "End-to-end
# fine-tuning on ImageNet classification", and the authors' code where the
# appendix is silent): 8 GPUs x 128 images.
#   tools/dist_train.sh configs/classification/finetune_vit-b16_100e_in1k.py \
#       8 --cfg-options load_from=CHECKPOINT
_base_ = [
    '../_base_/datasets/imagenet_classification.py',
    '../_base_/runtime.py',
]

num_classes = 1000
bgr_mean = [103.53, 116.28, 123.675]
bgr_std = [57.375, 57.12, 58.395]

model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(
        num_classes=num_classes,
        mean=bgr_mean[::-1],
        std=bgr_std[::-1],
        to_rgb=True,
    ),
    # The mean patch token goes through a new norm, instead of the final norm.
    backbone=dict(
        type='VisionTransformer',
        arch='b',
        img_size=224,
        patch_size=16,
        drop_path_rate=0.2,
        out_type='avg_featmap',
        final_norm=False,
    ),
    head=dict(
        type='LinearClsHead',
        num_classes=num_classes,
        in_channels=768,
        loss=dict(
            type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'
        ),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=2e-5),
    ),
    train_cfg=dict(
        augments=[
            dict(type='Mixup', alpha=0.8),
            dict(type='CutMix', alpha=1.0),
        ]
    ),
)

train_pipeline = [
    dict(type='mmmoca.SeedTransforms'),
    dict(type='mmmoca.LoadImage'),
    dict(type='mmmoca.RandomResizedCrop', scale=224, interpolation='bicubic'),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandAugment',
        policies='timm_increasing',
        num_policies=2,
        total_level=10,
        magnitude_level=9,
        magnitude_std=0.5,
        hparams=dict(
            pad_val=[round(x) for x in bgr_mean], interpolation='bicubic'
        ),
    ),
    dict(
        type='RandomErasing',
        erase_prob=0.25,
        mode='rand',
        min_area_ratio=0.02,
        max_area_ratio=1 / 3,
        fill_color=bgr_mean,
        fill_std=bgr_std,
    ),
    dict(type='PackInputs'),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator

# On a CPU this wrapper uses bfloat16 or float32, without loss scaling.
optim_wrapper = dict(
    type='mmmoca.MixedPrecisionOptimWrapper',
    dtype='float16',
    loss_scale='dynamic',
    constructor='mmmoca.LayerDecayOptimWrapperConstructor',
    optimizer=dict(
        type='AdamW',
        lr=1e-3 * 1024 / 256,
        betas=(0.9, 0.999),
        weight_decay=0.05,
    ),
    paramwise_cfg=dict(
        layer_decay_rate=0.65,
        flat_decay_mult=0.0,
        custom_keys={
            '.cls_token': dict(decay_mult=0.0),
            '.pos_embed': dict(decay_mult=0.0),
        },
    ),
)
param_scheduler = dict(
    type='mmmoca.WarmupCosineLR',
    warmup=5,
    eta_min_ratio=1e-6 / 4e-3,  # a ratio, so that layer decay scales it
    convert_to_iter_based=True,
)
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=100, val_interval=1)
val_cfg = dict()
test_cfg = dict()
auto_scale_lr = dict(enable=False, base_batch_size=1024)

default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=1, save_best='accuracy/top1'),
    checkpoint_fit=dict(needs_checkpoint=True),
)
