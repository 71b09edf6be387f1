# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The demo as it was when the tables in docs/benchmarks/own_images.md and
# docs/benchmarks/ablations.md were measured. Unlike the present demo, it
# solarises, weights both losses equally, has two masking rounds, replaces
# words more slowly, and has a slower teacher, softer targets and larger
# batches.
_base_ = '../configs/demo/moca_vit-tiny_textures.py'

model = dict(
    codebook=dict(num_new_words=4, inv_delta=10.0),
    head=dict(lambda_img=0.5),
    masking=dict(mask_ratios=(0.55, 0.75), decoder_mask_ratios=(0.35, 0.55)),
)
train_pipeline = _base_.train_pipeline
train_pipeline[2].transforms[1].insert(
    3, dict(type='Solarize', thr=128, prob=0.2)
)
train_dataloader = dict(batch_size=64, dataset=dict(pipeline=train_pipeline))
train_cfg = dict(max_iters=600, val_interval=120)
auto_scale_lr = dict(enable=False, base_batch_size=64)
default_hooks = dict(
    logger=dict(interval=20),
    checkpoint=dict(interval=120),
    teacher_ema=dict(momentum=0.95, end_momentum=1.0),
)
