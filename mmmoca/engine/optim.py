# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Parameter groups of MOCA and mixed precision on any device."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from mmengine.device import get_device
from mmengine.dist import all_reduce
from mmengine.optim import (
    AmpOptimWrapper,
    DefaultOptimWrapperConstructor,
    OptimWrapper,
)
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.utils import clip_grad_norm_

from mmmoca.registry import OPTIM_WRAPPER_CONSTRUCTORS, OPTIM_WRAPPERS

from .steps import whole_parameters

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

    def __call__(self, model: nn.Module) -> OptimWrapper:
        """Build the optimiser wrapper for the model.

        Args:
            model (nn.Module): The model, as it is wrapped for training.

        Returns:
            OptimWrapper: With its optimiser.
        """
        with whole_parameters(model):  # a shard has but one dimension
            return super().__call__(model)

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

    On a CPU it autocasts to bfloat16 in the place of float16, which has no
    fast CPU kernels. The loss is scaled for float16 only.

    Attributes:
        grad_norm (Tensor | None): Norm of the last step's gradients before
            they were clipped, a scalar on the device.
        skipped (Tensor | None): 1 if the loss scaler left the last step out,
            since its gradients were not finite, else 0; a scalar on the
            device. None if the loss is not scaled.

    Args:
        loss_scale (str | float | dict): See :class:`AmpOptimWrapper`.
        dtype (str | torch.dtype): 'float16', 'bfloat16', or 'float32' for
            no autocast. Defaults to 'float16'.
        **kwargs: See :class:`AmpOptimWrapper`. ``use_fsdp`` is not needed:
            sharded models are known when they are seen.
    """

    def __init__(
        self,
        loss_scale: str | float | dict = 'dynamic',
        dtype: str | torch.dtype = 'float16',
        **kwargs,
    ) -> None:
        self.grad_norm = self.skipped = self._model = None
        kwargs.pop('use_fsdp', None)
        if get_device() == 'cpu':
            OptimWrapper.__init__(self, **kwargs)
            full = dtype in ('float32', torch.float32)
            self.cast_dtype = torch.float32 if full else torch.bfloat16
            self._scale_update_param = None
        else:
            super().__init__(loss_scale=loss_scale, dtype=dtype, **kwargs)
        if self.cast_dtype != torch.float16:
            scaler = getattr(
                torch.amp, 'GradScaler', torch.cuda.amp.GradScaler
            )
            self.loss_scaler = scaler(enabled=False)

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """Context of the forward pass: autocast, if any."""
        self._model = model
        full = self.cast_dtype == torch.float32
        wrapper = OptimWrapper if full else AmpOptimWrapper
        with wrapper.optim_context(self, model):
            yield

    def step(self, **kwargs) -> None:
        """Update the parameters unless the gradients are not finite.

        Args:
            **kwargs: Arguments of the optimiser's ``step``.
        """
        self.loss_scaler.unscale_(self.optimizer)
        if self.loss_scaler.is_enabled():
            flags = self.loss_scaler._found_inf_per_device(self.optimizer)
            (flag,) = flags.values()  # the model is on one device
            if self._is_sharded:
                all_reduce(flag, op='max')
            self.skipped = flag.clone()
        if self.clip_grad_kwargs:
            self._clip_grad()
        self.loss_scaler.step(self.optimizer, **kwargs)
        self.loss_scaler.update(self._scale_update_param)

    @property
    def _is_sharded(self) -> bool:
        return isinstance(self._model, FullyShardedDataParallel)

    def _clip_grad(self) -> None:
        """Clip, and leave the norm on the device for :class:`StepLogHook`."""
        parameters = [
            parameter
            for group in self.optimizer.param_groups
            for parameter in group['params']
            if parameter.grad is not None
        ]
        clip = self.clip_func
        if clip is clip_grad_norm_ and self._is_sharded:
            # The norm of all shards, not of this process's.
            clip = FullyShardedDataParallel.clip_grad_norm_
            parameters = self._model
        self.grad_norm = clip(parameters, **self.clip_grad_kwargs)

    def load_state_dict(self, state_dict: dict) -> None:
        """Load, also from a run that did not scale its loss."""
        if not state_dict.get('loss_scaler', True):
            state_dict.pop('loss_scaler')
        super().load_state_dict(state_dict)
