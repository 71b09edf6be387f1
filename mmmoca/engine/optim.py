# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Parameter groups of MOCA and mixed precision on any device."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from mmengine.device import get_device
from mmengine.optim import (
    AmpOptimWrapper,
    DefaultOptimWrapperConstructor,
    OptimWrapper,
)
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from mmmoca.registry import OPTIM_WRAPPER_CONSTRUCTORS, OPTIM_WRAPPERS

__all__ = ['MOCAOptimWrapperConstructor', 'MixedPrecisionOptimWrapper']


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class MOCAOptimWrapperConstructor(DefaultOptimWrapperConstructor):
    """Four parameter groups: with and without decay, model and prototypes.

    Biases and other 1-D parameters do not decay. The prototype generators
    have a learning rate and a weight decay of their own, which stay constant
    under this package's schedulers. ``paramwise_cfg`` takes:

    - ``prototype_lr`` (float): Learning rate of the generators. Defaults to
      1e-4.
    - ``prototype_weight_decay`` (float): Their weight decay. Defaults to
      0.05.

    A group's ``constant`` key names what a schedule must leave alone.

    Raises:
        ValueError: If ``paramwise_cfg`` has any other key.
    """

    def __init__(
        self, optim_wrapper_cfg: dict, paramwise_cfg: dict | None = None
    ) -> None:
        options = dict(prototype_lr=1e-4, prototype_weight_decay=0.05)
        unknown = set(paramwise_cfg or {}) - set(options)
        if unknown:
            raise ValueError(
                f'paramwise_cfg takes {sorted(options)}, got {sorted(unknown)}'
            )
        super().__init__(optim_wrapper_cfg, options | (paramwise_cfg or {}))

    def add_params(
        self, params: list[dict], module: nn.Module, **kwargs
    ) -> None:
        """Sort all parameters of the model into the groups.

        Args:
            params (List[dict]): Gets the groups, in place.
            module (nn.Module): The whole model.
        """
        # Imported late: building an optimiser must not need the models.
        from mmmoca.models import PrototypeGenerator

        generators = {
            id(parameter)
            for part in module.modules()
            if isinstance(part, PrototypeGenerator)
            for parameter in part.parameters()
        }
        groups = {
            (own, decays): []
            for own in (False, True)
            for decays in (True, False)
        }
        for parameter in module.parameters():
            if parameter.requires_grad:
                groups[id(parameter) in generators, parameter.ndim > 1].append(
                    parameter
                )
        for (own, decays), parameters in groups.items():
            if not parameters:
                continue
            lr, weight_decay = self.base_lr, self.base_wd
            if own:
                lr = self.paramwise_cfg['prototype_lr']
                weight_decay = self.paramwise_cfg['prototype_weight_decay']
            params.append(
                dict(
                    params=parameters,
                    lr=lr,
                    weight_decay=weight_decay if decays else 0.0,
                    constant=self._constant(own, decays),
                )
            )

    @staticmethod
    def _constant(own: bool, decays: bool) -> list[str]:
        if own:
            return ['lr', 'weight_decay']
        return [] if decays else ['weight_decay']


@OPTIM_WRAPPERS.register_module()
class MixedPrecisionOptimWrapper(AmpOptimWrapper):
    """:class:`AmpOptimWrapper` that also runs where there is no GPU.

    On a CPU it autocasts to bfloat16, whatever ``dtype`` says: float16 has
    no fast CPU kernels. It also has attention computed by plain matrix
    products there: the backward pass of the fused CPU kernel is many times
    slower for the short sequences that masking leaves. The loss is scaled
    for float16 only.

    Attributes:
        grad_norm (Tensor | None): Norm of the last step's gradients before
            they were clipped, a scalar on the device.

    Args:
        loss_scale (str | float | dict): See :class:`AmpOptimWrapper`.
        dtype (str | torch.dtype): 'float16' or 'bfloat16'. Defaults to
            'float16'.
        **kwargs: See :class:`AmpOptimWrapper`.
    """

    def __init__(
        self,
        loss_scale: str | float | dict = 'dynamic',
        dtype: str | torch.dtype = 'float16',
        **kwargs,
    ) -> None:
        self.grad_norm = None
        self.on_cpu = get_device() == 'cpu'
        if self.on_cpu:
            kwargs.pop('use_fsdp', None)
            OptimWrapper.__init__(self, **kwargs)
            self.cast_dtype = torch.bfloat16
            self._scale_update_param = None
        else:
            super().__init__(loss_scale=loss_scale, dtype=dtype, **kwargs)
        if self.cast_dtype == torch.bfloat16:
            scaler = getattr(
                torch.amp, 'GradScaler', torch.cuda.amp.GradScaler
            )
            self.loss_scaler = scaler(enabled=False)

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """Context of the forward pass: autocast, and attention's kernel."""
        attention = (
            sdpa_kernel(SDPBackend.MATH) if self.on_cpu else nullcontext()
        )
        with super().optim_context(model), attention:
            yield

    def _clip_grad(self) -> None:
        """Clip, and leave the norm on the device for :class:`StepLogHook`."""
        parameters = [
            parameter
            for group in self.optimizer.param_groups
            for parameter in group['params']
            if parameter.grad is not None
        ]
        self.grad_norm = self.clip_func(parameters, **self.clip_grad_kwargs)

    def load_state_dict(self, state_dict: dict) -> None:
        """Load, also from a run that did not scale its loss."""
        if not state_dict.get('loss_scaler', True):
            state_dict.pop('loss_scaler')
        super().load_state_dict(state_dict)
