# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# Pretraining: the hooks that move the codebook and the teacher.
_base_ = './runtime.py'

# Every step has images of one size. randomness.deterministic=True wins.
env_cfg = dict(cudnn_benchmark=True)

default_hooks = dict(
    rank_me=dict(type='mmmoca.RankMeHook'),
    codebook=dict(type='mmmoca.CodebookHook'),
    teacher_ema=dict(type='mmmoca.TeacherEMAHook', momentum=0.99),
)
