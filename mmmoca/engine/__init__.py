# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from .backbone_checkpoint_hook import BackboneCheckpointHook
from .batch_size_hook import BatchSizeHook
from .checkpoint_fit_hook import CheckpointFitHook
from .checkpoint_hook import AtomicCheckpointHook
from .classifier_check_hook import ClassifierCheckHook
from .codebook_hook import CodebookHook
from .compile_hook import CompileHook
from .frozen_backbone_hook import FrozenBackboneHook
from .fsdp_strategy import MOCAFSDPStrategy
from .gpu_precision import GPUMixedPrecisionOptimWrapper
from .knn_loop import KNNValLoop
from .knn_test_loop import KNNTestLoop
from .layer_decay import LayerDecayOptimWrapperConstructor
from .low_shot_loop import LowShotTestLoop
from .optim import MixedPrecisionOptimWrapper, MOCAOptimWrapperConstructor
from .reproducibility_hook import ReproducibilityHook
from .schedulers import (
    CosineWeightDecay,
    MainGroupsCosineAnnealingLR,
    MainGroupsLinearLR,
    WarmupCosineLR,
)
from .seg_data_check_hook import SegDataCheckHook
from .step_log_hook import NonFiniteLossError, StepLogHook
from .teacher_ema_hook import TeacherEMAHook
from .winning_head_hook import WinningHeadHook

__all__ = [
    'BatchSizeHook',
    'CompileHook',
    'BackboneCheckpointHook',
    'CheckpointFitHook',
    'NonFiniteLossError',
    'StepLogHook',
    'AtomicCheckpointHook',
    'ReproducibilityHook',
    'ClassifierCheckHook',
    'CodebookHook',
    'CosineWeightDecay',
    'FrozenBackboneHook',
    'MOCAFSDPStrategy',
    'KNNTestLoop',
    'KNNValLoop',
    'LowShotTestLoop',
    'MOCAOptimWrapperConstructor',
    'MainGroupsCosineAnnealingLR',
    'MainGroupsLinearLR',
    'MixedPrecisionOptimWrapper',
    'WarmupCosineLR',
    'WinningHeadHook',
    'SegDataCheckHook',
    'TeacherEMAHook',
    'LayerDecayOptimWrapperConstructor',
    'GPUMixedPrecisionOptimWrapper',
]
