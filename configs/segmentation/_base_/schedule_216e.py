# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Segmenter's schedule for Cityscapes. Tune the learning rate for each backbone
# (tools/analysis_tools/lr_sweep.py).
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(
        type='SGD', lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.0
    ),
)
# The schedule ends with the run: it follows train_cfg.max_epochs.
param_scheduler = [
    dict(
        type='PolyLR',
        power=0.9,
        eta_min=1e-5,
        by_epoch=True,
        convert_to_iter_based=True,
    )
]
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=216, val_interval=4)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(enable=False, base_batch_size=8)
