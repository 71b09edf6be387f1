# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import torch
from mmengine.device import get_device

from mmmoca.registry import OPTIM_WRAPPERS

from .optim import MixedPrecisionOptimWrapper

__all__ = ['GPUMixedPrecisionOptimWrapper']


@OPTIM_WRAPPERS.register_module()
class GPUMixedPrecisionOptimWrapper(MixedPrecisionOptimWrapper):
    """Mixed precision on a GPU, float32 on a CPU.

    For detection: the CPU kernels of mmcv's operators (non-maximum
    suppression, RoIAlign) take float32 only.

    Args:
        dtype (str | torch.dtype): On a GPU, see
            :class:`MixedPrecisionOptimWrapper`. Defaults to 'float16'.
        **kwargs: See :class:`MixedPrecisionOptimWrapper`.
    """

    def __init__(self, dtype: str | torch.dtype = 'float16', **kwargs) -> None:
        if get_device() == 'cpu':
            dtype = 'float32'
        super().__init__(dtype=dtype, **kwargs)
