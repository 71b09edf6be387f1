# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The paper fine-tunes ViT-L/16 (Table 10) without giving the settings. It
# follows iBOT for ViT-B/16. iBOT's ViT-L has these three settings of its own.
_base_ = './finetune_vit-b16_100e_in1k.py'

model = dict(
    backbone=dict(arch='l', drop_path_rate=0.4),
    head=dict(in_channels=1024),
)
optim_wrapper = dict(paramwise_cfg=dict(layer_decay_rate=0.75))
train_cfg = dict(max_epochs=50)
