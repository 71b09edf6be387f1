# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Pretraining on your own unlabelled images, in any tree of folders:
#   tools/dist_train.sh configs/moca_vit-b16_own-images.py 2 \
#       --cfg-options data_root=/path/to/images epochs=200 batch_size=128
# `tools/train.py CONFIG --check --cfg-options ...` describes the run before it
# starts. docs/get_started/own_images.md explains the rules.
_base_ = ['./moca_vit-b16_200e.py', '../_base_/own_images.py']

train_dataloader = dict(
    batch_size=64, dataset=dict(data_root='data/images/', data_prefix='')
)
train_cfg = dict(max_epochs=200, val_interval=10)
# The agreement of neighbours needs no labels. With knn_root=DIR, k-NN is
# measured as well. The checkpoint with the best k-NN accuracy, or else with
# the best agreement, is kept. For comparison, raw pixels and the encoder that
# the run starts from are measured, too.
val_cfg = dict(data_root='', baselines=True, agreement=dict(num_images=500))

# 'auto' numbers are computed from the number of images, B images per step and
# S steps. You may write a number instead.
optim_wrapper = dict(optimizer=dict(lr='auto'))  # 1.2e-3 (B / 2048)^.5
auto_scale_lr = dict(_delete_=True, enable=False)  # no rate is scaled
param_scheduler = dict(warmup=0.15)  # fraction of the run, as in the paper
model = dict(
    codebook=dict(
        num_words='auto',  # 1024 for 100 000 images, fewer in a short run
        # 4, or as many as replace the codebook once during the warm-up.
        num_new_words='auto',
    )
)
default_hooks = dict(
    teacher_ema=dict(momentum='auto'),  # 1 - .1 (1250 / S)^.5
    checkpoint=dict(save_best='knn/top1_k20'),
)
