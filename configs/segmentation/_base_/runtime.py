# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = ['../../_base_/runtime.py']

default_scope = 'mmseg'

default_hooks = dict(
    logger=dict(interval=50),
    checkpoint=dict(
        interval=4, max_keep_ckpts=1, save_best='mIoU', rule='greater'
    ),
)
visualizer = dict(type='SegLocalVisualizer', _scope_='mmseg', alpha=0.6)
