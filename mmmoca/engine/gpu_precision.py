# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Iterator
from contextlib import contextmanager

from mmengine.optim import OptimWrapper
from torch import nn

from mmmoca.registry import OPTIM_WRAPPERS

from .optim import MixedPrecisionOptimWrapper

__all__ = ['GPUMixedPrecisionOptimWrapper']


@OPTIM_WRAPPERS.register_module()
class GPUMixedPrecisionOptimWrapper(MixedPrecisionOptimWrapper):
    """Mixed precision on a GPU, float32 on a CPU.

    For detection: the CPU kernels of mmcv's operators (non-maximum
    suppression, RoIAlign) take float32 only.

    Args:
        **kwargs: See :class:`MixedPrecisionOptimWrapper`.
    """

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """Context of the forward pass: autocast if this is a GPU."""
        parent = OptimWrapper if self.on_cpu else MixedPrecisionOptimWrapper
        with parent.optim_context(self, model):
            yield
