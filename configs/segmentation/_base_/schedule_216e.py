# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Segmenter's schedule for Cityscapes. The learning rate is to be tuned for
# each backbone (tools/analysis_tools/lr_sweep.py).
max_epochs = 216

optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(
        type='SGD', lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.0
    ),
)
param_scheduler = [
    dict(
        type='PolyLR',
        power=0.9,
        eta_min=1e-5,
        by_epoch=True,
        begin=0,
        end=max_epochs,
        convert_to_iter_based=True,
    )
]
train_cfg = dict(
    type='EpochBasedTrainLoop', max_epochs=max_epochs, val_interval=4
)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(base_batch_size=8)
