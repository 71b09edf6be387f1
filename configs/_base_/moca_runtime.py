# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
# The runtime of pretraining, with the hooks that update the codebook and the
# teacher.
_base_ = './runtime.py'

# Useful here, since all steps have images of one size.
# randomness.deterministic=True switches it off.
env_cfg = dict(cudnn_benchmark=True)

default_hooks = dict(
    rank_me=dict(type='mmmoca.RankMeHook'),
    codebook=dict(type='mmmoca.CodebookHook'),
    teacher_ema=dict(type='mmmoca.TeacherEMAHook', momentum=0.99),
)
