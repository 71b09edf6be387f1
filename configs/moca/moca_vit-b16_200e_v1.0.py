# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The recipe of release v1.0 of the authors' code, which is slightly better
# than the paper's: the weight decay rises along a cosine and the teacher
# starts slower.
_base_ = './moca_vit-b16_200e.py'

param_scheduler = [
    _base_.param_scheduler,
    dict(
        type='mmmoca.CosineWeightDecay',
        eta_min=0.2,  # where it ends; it starts at the optimiser's 0.05
        convert_to_iter_based=True,
    ),
]
default_hooks = dict(teacher_ema=dict(momentum=0.994))
