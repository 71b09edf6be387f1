# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The demo's recipe, whose CPU seconds are recorded. The steps of all methods
# take the same CPU seconds.
_base_ = '../../../configs/demo/moca_vit-tiny_textures.py'

custom_imports = dict(imports=['projects.rivals.hooks'])
# Loading counts: it runs in the process whose seconds are taken.
train_dataloader = dict(num_workers=0, persistent_workers=False)
train_cfg = dict(max_iters=840)
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=-1), seconds=dict(type='CPUSecondsHook')
)
