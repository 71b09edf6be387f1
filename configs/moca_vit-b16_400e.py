# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
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
        T_max=1.25 * 400 - 30,
        by_epoch=True,
        begin=30,
        end=400,
        convert_to_iter_based=True,
    ),
]
train_cfg = dict(max_epochs=400)
