# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Release v1.0 of the authors' code, slightly better than the paper: the weight
# decay rises along a cosine and the teacher starts slower.
_base_ = './moca_vit-b16_200e.py'

param_scheduler = [
    dict(
        type='mmmoca.MainGroupsLinearLR',
        start_factor=1e-9,
        by_epoch=True,
        begin=0,
        end=30,
        convert_to_iter_based=True,
    ),
    dict(
        type='mmmoca.MainGroupsCosineAnnealingLR',
        T_max=1.25 * 200 - 30,
        by_epoch=True,
        begin=30,
        end=200,
        convert_to_iter_based=True,
    ),
    dict(
        type='mmmoca.CosineWeightDecay',
        eta_min=0.2,  # where it ends; it starts at the optimiser's 0.05
        by_epoch=True,
        begin=0,
        end=200,
        convert_to_iter_based=True,
    ),
]
default_hooks = dict(teacher_ema=dict(momentum=0.994))
