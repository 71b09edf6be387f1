# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import torch
from mmengine._strategy import FSDPStrategy
from mmengine.device import get_device
from mmengine.optim import BaseOptimWrapper
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from mmmoca.engine.optimizers import MixedPrecisionOptimWrapper
from mmmoca.models import EncoderLayer, PrototypeGenerator
from mmmoca.registry import STRATEGIES

__all__ = ['MOCAFSDPStrategy']


@STRATEGIES.register_module()
class MOCAFSDPStrategy(FSDPStrategy):
    """Pretraining with student, gradients and optimiser state sharded.

    For ``runner_type='FlexibleRunner'``. Every transformer layer and
    prototype generator is a unit of its own. The teacher and the codebook
    stay whole on every process: the teacher's update reads the whole student
    once a step, which is what gathering a sharded teacher for its forward
    pass would cost.

    Args:
        model_wrapper (dict, optional): Arguments of
            :class:`MMFullyShardedDataParallel`. Defaults to None:
            ``sharding_strategy='SHARD_GRAD_OP'``, so that the student is
            whole from its forward to its backward pass.
        state_dict_cfg (str | dict): See :class:`FSDPStrategy`. Defaults to
            'full': checkpoints are those of any other run, but for the
            optimiser's state, which goes by parameter name.
        **kwargs: See :class:`FSDPStrategy`.

    Raises:
        ValueError: If the config asks for ``compile``, too, or has another
            optimiser wrapper than :class:`MixedPrecisionOptimWrapper`.
    """

    def __init__(
        self,
        *,
        model_wrapper: dict | None = None,
        state_dict_cfg: str | dict = 'full',
        **kwargs,
    ) -> None:
        super().__init__(
            model_wrapper=model_wrapper,
            state_dict_cfg=state_dict_cfg,
            **kwargs,
        )

    def prepare(self, model: nn.Module | dict, **kwargs) -> tuple:
        """Build, wrap and shard; see :meth:`SingleDeviceStrategy.prepare`."""
        if kwargs.get('compile'):
            raise ValueError(
                'compile and a sharded model do not go together: take '
                "compile out of the config, or runner_type='FlexibleRunner' "
                'and strategy'
            )
        return super().prepare(model, **kwargs)

    def _wrap_model(self, model: nn.Module) -> FullyShardedDataParallel:
        device = torch.device(get_device())
        if device.type == 'cuda':
            device = torch.device('cuda', torch.cuda.current_device())
        else:
            # PyTorch would free the parameters while it "moves" them.
            self.state_dict_config.offload_to_cpu = False
            self.optim_state_dict_config.offload_to_cpu = False
        whole = ['teacher', 'codebook']
        for name in whole:
            model.get_submodule(name).to(device)
        units = {EncoderLayer, PrototypeGenerator}
        self.model_wrapper = dict(
            type='MMFullyShardedDataParallel',
            device_id=device,
            # The second masking round wants the whole student, too, and so
            # does the backward pass: sharding it in between saves nothing.
            sharding_strategy='SHARD_GRAD_OP',
            ignored_modules=whole,
            auto_wrap_policy=ModuleWrapPolicy(units),
        ) | (self.model_wrapper or {})
        return super()._wrap_model(model)

    def optim_state_dict(self) -> dict:
        """State of the optimiser and of the loss scaler.

        Returns:
            dict: The whole state on the main process, by parameter name.
        """
        wrapper = self.optim_wrapper
        state = wrapper.state_dict()
        own = {key: state.pop(key) for key in ('state', 'param_groups')}
        return state | FullyShardedDataParallel.optim_state_dict(
            self.model, wrapper.optimizer, own
        )

    def load_optim_state_dict(self, state_dict: dict) -> None:
        """Load what :meth:`optim_state_dict` returned on the main process.

        Args:
            state_dict (dict): The whole state.
        """
        own = {key: state_dict.pop(key) for key in ('state', 'param_groups')}
        shards = FullyShardedDataParallel.optim_state_dict_to_load(
            self.model, self.optim_wrapper.optimizer, own
        )
        self.optim_wrapper.load_state_dict(state_dict | shards)

    def build_optim_wrapper(
        self, optim_wrapper: dict, model: nn.Module | None = None
    ) -> BaseOptimWrapper:
        """Build the optimiser wrapper; others clip by the norm of a shard."""
        wrapper = super().build_optim_wrapper(optim_wrapper, model)
        if not isinstance(wrapper, MixedPrecisionOptimWrapper):
            raise ValueError(
                f'{type(wrapper).__name__} knows nothing of the other '
                "processes' shards: write type='mmmoca."
                "MixedPrecisionOptimWrapper' in optim_wrapper, with "
                "dtype='float32' for full precision"
            )
        return wrapper
