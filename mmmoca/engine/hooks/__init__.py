# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import mmmoca.import_mmpretrain  # noqa: F401

from .checkpoint_fit_hook import CheckpointFitHook
from .checkpoint_hook import AtomicCheckpointHook, NonFiniteStateError
from .class_check_hook import ClassCheckHook
from .codebook_hook import CodebookHook
from .look_hook import LookHook
from .preemption_hook import PreemptionHook
from .progress_hook import ProgressHook
from .rank_me_hook import RankMeHook
from .reproducibility_hook import ReproducibilityHook
from .step_log_hook import NonFiniteLossError, StepLogHook
from .teacher_ema_hook import TeacherEMAHook
from .tta_hook import UnwrappedTTAHook
from .winning_head_hook import WinningHeadHook

__all__ = [
    'AtomicCheckpointHook',
    'CheckpointFitHook',
    'ClassCheckHook',
    'CodebookHook',
    'LookHook',
    'NonFiniteLossError',
    'NonFiniteStateError',
    'PreemptionHook',
    'ProgressHook',
    'RankMeHook',
    'ReproducibilityHook',
    'StepLogHook',
    'TeacherEMAHook',
    'UnwrappedTTAHook',
    'WinningHeadHook',
]
