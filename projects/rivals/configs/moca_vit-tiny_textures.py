# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The demo's recipe. The numbers of steps are chosen so that all methods take
# the same CPU time.
_base_ = '../../../configs/demo/moca_vit-tiny_textures.py'

custom_imports = dict(imports=['projects.rivals.hooks'])
train_cfg = dict(max_iters=840)
