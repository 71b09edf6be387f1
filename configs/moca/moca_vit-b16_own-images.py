# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Your own unlabelled images, in one folder or any tree of folders:
#   tools/dist_train.sh configs/moca_vit-b16_own-images.py 2 \
#       --cfg-options data_root=/path/to/images epochs=200 batch_size=128
# `tools/train.py CONFIG --check --cfg-options ...` describes the run before it
# starts. docs/get_started/own_images.md explains the rules.
_base_ = ['./moca_vit-b16_200e.py', '../_base_/own_images.py']

train_dataloader = dict(
    batch_size=64, dataset=dict(data_root='data/images/', data_prefix='')
)
train_cfg = dict(max_epochs=200, val_interval=10)
# The agreement of neighbours needs no labels. With knn_root=DIR k-NN is
# measured, too. The best checkpoint is kept, and the encoder that the run
# starts from and raw pixels are measured, too.
val_cfg = dict(data_root='', baselines=True, agreement=dict(num_images=500))

# 'auto' follows from N images, B images a step and S steps. A number can
# replace it.
optim_wrapper = dict(optimizer=dict(lr='auto'))  # 1.2e-3 (B / 2048)^.5
auto_scale_lr = dict(_delete_=True, enable=False)  # a number is taken as it is
param_scheduler = dict(warmup=0.15)  # of the run, as in the paper
model = dict(
    codebook=dict(
        num_words='auto',  # 1024 for 100 000 images, fewer in a short run
        num_new_words='auto',  # 4, or the codebook once in the warm-up
    )
)
default_hooks = dict(
    teacher_ema=dict(momentum='auto'),  # 1 - .1 (1250 / S)^.5
    checkpoint=dict(save_best='knn/top1_k20'),
)
