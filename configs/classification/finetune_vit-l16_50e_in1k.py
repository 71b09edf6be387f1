# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Fine-tuning of a whole ViT-L/16 (the paper's Table 10). The paper does not
# give the settings. For ViT-B/16 it follows iBOT. iBOT has other values for
# ViT-L than for ViT-B in three settings; this config uses those for ViT-L.
_base_ = './finetune_vit-b16_100e_in1k.py'

model = dict(
    backbone=dict(arch='l', drop_path_rate=0.4),
    head=dict(in_channels=1024),
)
optim_wrapper = dict(paramwise_cfg=dict(layer_decay_rate=0.75))
train_cfg = dict(max_epochs=50)
