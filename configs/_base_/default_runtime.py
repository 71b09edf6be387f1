# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Pretraining: the hooks that move the codebook and the teacher.
_base_ = './runtime.py'

default_hooks = dict(
    codebook=dict(type='mmmoca.CodebookHook'),
    teacher_ema=dict(type='mmmoca.TeacherEMAHook', momentum=0.99),
)
