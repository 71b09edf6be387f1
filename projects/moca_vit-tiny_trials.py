# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The quick start as it was when the tables of own_images and paper_ablations
# were measured: two rounds, slower words, a slower teacher, larger batches.
_base_ = '../configs/demo/moca_vit-tiny_textures.py'

model = dict(
    codebook=dict(num_new_words=4),
    head=dict(lambda_img=0.5),
    masking=dict(mask_ratios=(0.55, 0.75), decoder_mask_ratios=(0.35, 0.55)),
)
train_dataloader = dict(batch_size=64)
train_cfg = dict(max_iters=600, val_interval=120)
auto_scale_lr = dict(base_batch_size=64)
default_hooks = dict(
    logger=dict(interval=20),
    checkpoint=dict(interval=120),
    teacher_ema=dict(momentum=0.95, end_momentum=1.0),
)
