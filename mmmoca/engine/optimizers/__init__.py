# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import mmmoca.import_mmpretrain  # noqa: F401

from .layer_decay import LayerDecayOptimWrapperConstructor
from .mixed_precision import (
    GPUMixedPrecisionOptimWrapper,
    MixedPrecisionOptimWrapper,
)
from .optim_wrapper_constructor import MOCAOptimWrapperConstructor

__all__ = [
    'GPUMixedPrecisionOptimWrapper',
    'LayerDecayOptimWrapperConstructor',
    'MOCAOptimWrapperConstructor',
    'MixedPrecisionOptimWrapper',
]
