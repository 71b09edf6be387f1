# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from .checkpoint_fit_hook import CheckpointFitHook
from .checkpoint_hook import AtomicCheckpointHook
from .codebook_hook import CodebookHook
from .compile_hook import CompileHook
from .knn_loop import KNNTestLoop, KNNValLoop
from .optim import MixedPrecisionOptimWrapper, MOCAOptimWrapperConstructor
from .reproducibility_hook import ReproducibilityHook
from .schedulers import (
    CosineWeightDecay,
    MainGroupsCosineAnnealingLR,
    MainGroupsLinearLR,
)
from .step_log_hook import NonFiniteLossError, StepLogHook
from .teacher_ema_hook import TeacherEMAHook

__all__ = [
    'CompileHook',
    'CheckpointFitHook',
    'NonFiniteLossError',
    'StepLogHook',
    'AtomicCheckpointHook',
    'ReproducibilityHook',
    'CodebookHook',
    'CosineWeightDecay',
    'KNNTestLoop',
    'KNNValLoop',
    'MOCAOptimWrapperConstructor',
    'MainGroupsCosineAnnealingLR',
    'MainGroupsLinearLR',
    'MixedPrecisionOptimWrapper',
    'TeacherEMAHook',
]
