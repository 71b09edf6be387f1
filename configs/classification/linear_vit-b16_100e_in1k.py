# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Linear probing of a frozen ViT-B/16 as in iBOT, which the paper follows
# (appendix, "Linear ImageNet classification"): 8 GPUs x 128 images.
#   tools/dist_train.sh configs/classification/linear_vit-b16_100e_in1k.py 8 \
#       --cfg-options load_from=CHECKPOINT
_base_ = [
    '../_base_/models/vit-b16_features.py',
    '../_base_/datasets/imagenet_classification.py',
    '../_base_/runtime.py',
]

# The feature is [AVG]. For [CLS]:
# model.backbone.out_type=cls_token model.neck=None.
model = dict(
    type='mmmoca.LinearProbe',
    head=dict(
        type='mmmoca.BatchedLinearHead',
        num_classes=1000,
        # 45 rates, the paper's 0.04 among them.
        base_lrs=[n * 10.0**k for k in range(-4, 1) for n in range(1, 10)],
    ),
)

val_evaluator = dict(type='mmmoca.LinearProbeAccuracy')
test_evaluator = val_evaluator

# The rate of each classifier is this rate times its base rate.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='SGD', lr=1024 / 256, momentum=0.9, weight_decay=0.0),
)
# The rate falls to 0 over all epochs, in one step per epoch as in iBOT.
param_scheduler = dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=True)
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=100, val_interval=1)
val_cfg = dict()
test_cfg = dict()
auto_scale_lr = dict(enable=False, base_batch_size=1024)

default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=1),
    checkpoint_fit=dict(needs_checkpoint=True),
    winning_head=dict(type='mmmoca.WinningHeadHook'),
)
