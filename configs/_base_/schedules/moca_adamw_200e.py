# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# On a CPU this wrapper uses bfloat16 or float32, without loss scaling.
optim_wrapper = dict(
    type='mmmoca.MixedPrecisionOptimWrapper',
    dtype='float16',
    loss_scale='dynamic',
    constructor='mmmoca.MOCAOptimWrapperConstructor',
    optimizer=dict(
        type='AdamW',
        lr=1.5e-4 * 2048 / 256,  # base rate of the paper's Table 11b
        betas=(0.9, 0.999),
        weight_decay=0.05,
        fused=True,
    ),  # on a CPU this needs torch>=2.4
    clip_grad=dict(max_norm=0.1),
    paramwise_cfg=dict(prototype_lr=1e-4, prototype_weight_decay=0.05),
)

# The schedule follows max_epochs. The cosine would reach 0 after 1.25 times
# the epochs, but the run ends before that.
param_scheduler = dict(
    type='mmmoca.WarmupCosineLR',
    warmup=30,
    period=1.25,
    convert_to_iter_based=True,
)

train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=200, val_interval=20)
auto_scale_lr = dict(enable=False, base_batch_size=2048)
