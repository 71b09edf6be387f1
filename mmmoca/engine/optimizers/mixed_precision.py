# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Mixed precision on any device."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from mmengine.device import get_device
from mmengine.logging import print_log
from mmengine.optim import AmpOptimWrapper, OptimWrapper
from torch import nn

from mmmoca.engine.steps import unwrap_model
from mmmoca.registry import OPTIM_WRAPPERS

DTYPES = 'float16', 'bfloat16', 'float32', 'auto'


def fast_dtype() -> str:
    """Find the floating-point type in which this machine trains fastest.

    Returns:
        str: On a CUDA GPU, 'bfloat16' if the GPU supports it, else 'float16'.
        On a CPU, 'bfloat16' if the CPU has AVX-512 or AMX instructions for it,
        else 'float32', which takes half the time of emulated bfloat16. On
        other devices, such as Apple's GPUs, 'float32'.
    """
    device = get_device()
    if device == 'cuda':
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        return 'bfloat16' if native else 'float16'
    if device == 'cpu':
        # PyTorch before 2.11 does not list the capabilities.
        there = getattr(torch.cpu, 'get_capabilities', dict)()
        if there.get('avx512_bf16') or there.get('amx_bf16'):
            return 'bfloat16'
    return 'float32'


@OPTIM_WRAPPERS.register_module()
class MixedPrecisionOptimWrapper(AmpOptimWrapper):
    """:class:`AmpOptimWrapper` that also runs without CUDA.

    Without CUDA, 'float16' is treated as 'auto', since CPUs have no fast
    kernels for it. The loss is scaled only for float16, thus only on CUDA.

    Attributes:
        grad_norm (Tensor | None): Norm of the last step's gradients before
            clipping, a scalar on the device. None without clipping.
        skipped (Tensor | None): A scalar on the device: 1 if the loss scaler
            skipped the last step because its gradients were not finite, else
            0. None if the loss is not scaled.

    Args:
        loss_scale (str | float | dict): See :class:`AmpOptimWrapper`.
        dtype (str | torch.dtype): 'float16', 'bfloat16', 'float32' for no
            autocast, or 'auto': see :func:`fast_dtype`. Defaults to
            'float16'.
        **kwargs: See :class:`AmpOptimWrapper`.

    Raises:
        ValueError: If ``dtype`` is another type.
    """

    def __init__(
        self,
        loss_scale: str | float | dict = 'dynamic',
        dtype: str | torch.dtype = 'float16',
        **kwargs,
    ) -> None:
        self.grad_norm = self.skipped = None
        dtype = str(dtype).removeprefix('torch.')
        if dtype not in DTYPES:
            raise ValueError(f'dtype must be one of {DTYPES}, got {dtype}')
        if dtype == 'auto' or (dtype == 'float16' and get_device() != 'cuda'):
            dtype = fast_dtype()
            print_log(f'optim_wrapper.dtype is {dtype}', 'current')
        if dtype == 'float16':
            super().__init__(loss_scale=loss_scale, dtype=dtype, **kwargs)
        else:
            OptimWrapper.__init__(self, **kwargs)
            self.cast_dtype = getattr(torch, dtype)
            self.loss_scaler = torch.amp.GradScaler(enabled=False)
            self._scale_update_param = None

    def initialize_count_status(
        self, model: nn.Module, init_counts: int, max_counts: int
    ) -> None:
        """Count steps as MMEngine does, but without its false warning.

        MMEngine warns because micro-batches affect batch normalisation. MOCA's
        prototype generators normalise over words, which do not depend on the
        micro-batch.
        """
        inner = unwrap_model(model)
        model = inner.backbone if hasattr(inner, 'codebook') else model
        super().initialize_count_status(model, init_counts, max_counts)

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """Run the forward pass with autocast, unless ``dtype`` is float32."""
        half = self.cast_dtype != torch.float32
        # MMEngine's autocast refuses Apple's GPUs.
        autocast = torch.autocast(get_device(), self.cast_dtype, enabled=half)
        with OptimWrapper.optim_context(self, model), autocast:
            yield

    def step(self, **kwargs) -> None:
        """Update the parameters, unless the loss scaler skips the step.

        Args:
            **kwargs: Arguments of the optimiser's ``step``.
        """
        self.loss_scaler.unscale_(self.optimizer)
        if self.loss_scaler.is_enabled():
            flags = self.loss_scaler._found_inf_per_device(self.optimizer)
            (flag,) = flags.values()  # the model is on one device
            self.skipped = flag.clone()
        if self.clip_grad_kwargs:
            self._clip_grad()
        self.loss_scaler.step(self.optimizer, **kwargs)
        self.loss_scaler.update(self._scale_update_param)

    def _clip_grad(self) -> None:
        # MMEngine's method waits for the device in order to log the norm.
        groups = self.optimizer.param_groups
        parameters = [p for group in groups for p in group['params']]
        self.grad_norm = self.clip_func(parameters, **self.clip_grad_kwargs)

    def load_state_dict(self, state_dict: dict) -> None:
        """Load a state, even one from a run without loss scaling."""
        if not state_dict.get('loss_scaler', True):
            state_dict.pop('loss_scaler')
        super().load_state_dict(state_dict)


@OPTIM_WRAPPERS.register_module()
class GPUMixedPrecisionOptimWrapper(MixedPrecisionOptimWrapper):
    """Mixed precision on CUDA, float32 elsewhere.

    This is for detection: without CUDA, mmcv's operators (non-maximum
    suppression, RoIAlign) accept float32 only.

    Args:
        dtype (str | torch.dtype): The type on CUDA, see
            :class:`MixedPrecisionOptimWrapper`. Defaults to 'float16'.
        **kwargs: See :class:`MixedPrecisionOptimWrapper`.
    """

    def __init__(self, dtype: str | torch.dtype = 'float16', **kwargs) -> None:
        if get_device() != 'cuda':
            dtype = 'float32'
        super().__init__(dtype=dtype, **kwargs)
