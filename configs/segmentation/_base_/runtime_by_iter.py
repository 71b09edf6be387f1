# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
_base_ = ['./runtime.py']

default_hooks = dict(
    logger=dict(log_metric_by_epoch=False),
    checkpoint=dict(by_epoch=False, interval=5000),
)
log_processor = dict(by_epoch=False)
