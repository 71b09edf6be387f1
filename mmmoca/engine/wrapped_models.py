# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The model inside whatever wraps it for several processes."""

from contextlib import AbstractContextManager, nullcontext

from mmengine.model import is_model_wrapper
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType

__all__ = ['unwrap_model', 'whole_parameters', 'whole_state_dict']


def unwrap_model(model: nn.Module) -> nn.Module:
    """The algorithm itself, whatever wraps it for several processes."""
    while is_model_wrapper(model):
        model = model.module
    return model


def whole_parameters(model: nn.Module) -> AbstractContextManager:
    """Context in which every process has all parameters, to be read only.

    Args:
        model (nn.Module): The runner's model. Nothing happens unless its
            parameters are sharded.

    Returns:
        AbstractContextManager: The context; all processes must enter it.
    """
    if isinstance(model, FullyShardedDataParallel):
        return FullyShardedDataParallel.summon_full_params(
            model, writeback=False
        )
    return nullcontext()


def whole_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """State of the algorithm, whole and by its own names on every process.

    Args:
        model (nn.Module): The runner's model; all processes must call this
            if its parameters are sharded.

    Returns:
        dict[str, Tensor]: As a checkpoint has it.
    """
    if not isinstance(model, FullyShardedDataParallel):
        return unwrap_model(model).state_dict()
    with FullyShardedDataParallel.state_dict_type(
        model, StateDictType.FULL_STATE_DICT
    ):
        return model.state_dict()
