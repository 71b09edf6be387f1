# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Frozen linear segmentation of ADE20K as DINOv3 does it:
#   tools/dist_train.sh configs/segmentation/THIS.py 8 --cfg-options \
#       model.backbone.init_cfg.checkpoint=mmmoca-teacher://CHECKPOINT
_base_ = [
    './_base_/linear_vit-b16.py',
    './_base_/ade20k_512x512.py',
    './_base_/runtime_by_iter.py',
]

train_dataloader = dict(
    batch_size=2,  # times 8 GPUs
    sampler=dict(infinite=True),
)
