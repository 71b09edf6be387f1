# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Attentive probing of a frozen ViT-B/16, as CAPI does it: 30 classifiers, one
# for each pair of learning rate and weight decay, on the patches after the
# final norm; 12 500 steps of 8 GPUs x 128 images. A tenth of the training
# images is held out to choose one classifier; the result is its accuracy on
# the validation images.
#   tools/dist_train.sh configs/classification/attentive_vit-b16_in1k.py 8 \
#       --cfg-options load_from=CHECKPOINT
_base_ = [
    '../_base_/models/vit-b16_features.py',
    '../_base_/datasets/imagenet_classification.py',
    '../_base_/runtime.py',
]

rates = [n * 10.0**k for k in range(-5, -1) for n in (1, 2, 5)][:10]
grid = [(r, decay) for r in rates for decay in (5e-4, 1e-3, 5e-2)]
# The features are all patches. Each classifier attends to them.
model = dict(
    type='mmmoca.LinearProbe',
    neck=None,
    head=dict(
        type='mmmoca.AttentiveHead',
        num_classes=1000,
        base_lrs=[r for r, _ in grid],
    ),
)

held_out_pipeline = [
    *_base_.test_pipeline[:-1],
    dict(
        type='PackInputs',
        meta_keys=('sample_idx', 'img_path', 'ori_shape', 'held_out'),
    ),
]
train_set = _base_.train_dataloader.dataset
train_set.pipeline[2].interpolation = 'bicubic'  # of the crop
train_dataloader = dict(
    sampler=dict(infinite=True),
    dataset=dict(
        _delete_=True, type='mmmoca.HeldOut', rest=True, dataset=train_set
    ),
)
val_dataloader = dict(
    dataset=dict(
        _delete_=True,
        type='ConcatDataset',
        datasets=[
            dict(
                type='mmmoca.HeldOut',
                dataset=dict(
                    type='mmmoca.ImageFolder',
                    data_root=_base_.imagenet,
                    data_prefix='train',
                    pipeline=held_out_pipeline,
                    test_mode=True,
                ),
            ),
            _base_.val_dataloader.dataset,
        ],
    )
)
test_dataloader = val_dataloader
val_evaluator = dict(type='mmmoca.LinearProbeAccuracy')
test_evaluator = val_evaluator

optim_wrapper = dict(
    type='OptimWrapper',
    # Each classifier multiplies this rate by its lr_mult, and this decay by
    # its decay_mult.
    optimizer=dict(
        type='AdamW', lr=1024 / 256, betas=(0.9, 0.95), weight_decay=1.0
    ),
    paramwise_cfg=dict(
        custom_keys={
            f'classifiers.{i}.{part}': dict(
                lr_mult=rate, decay_mult=0.0 if 'bias' in part else decay
            )
            for i, (rate, decay) in enumerate(grid)
            for part in (
                'query',
                'key.weight',
                'value.weight',
                'value.bias',
                'fc.weight',
                'fc.bias',
            )
        }
    ),
)
# The rate rises in a tenth of the steps, then falls to 0.
param_scheduler = dict(
    type='mmmoca.WarmupCosineLR', warmup=0.1, by_epoch=False
)
train_cfg = dict(type='IterBasedTrainLoop', max_iters=12500, val_interval=1250)
val_cfg = dict()
test_cfg = dict()
auto_scale_lr = dict(enable=False, base_batch_size=1024)

default_hooks = dict(
    checkpoint=dict(by_epoch=False, interval=1250, max_keep_ckpts=1),
    checkpoint_fit=dict(needs_checkpoint=True),
)
log_processor = dict(by_epoch=False)
