# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a hook needs to know of optimiser steps and wrapped models."""

from contextlib import AbstractContextManager, nullcontext

import numpy as np
from mmengine.dist import get_world_size
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType

__all__ = [
    'images_per_step',
    'mix_seed',
    'optimizer_steps',
    'skipped',
    'stepped',
    'total_optimizer_steps',
    'unwrap_model',
    'whole_parameters',
    'whole_state_dict',
]


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


def stepped(runner: Runner) -> bool:
    """Whether the iteration that just ran ended in an optimiser step."""
    return runner.optim_wrapper.should_update()


def skipped(runner: Runner) -> Tensor | None:
    """Whether the loss scaler left the last optimiser step out.

    Args:
        runner (Runner): The runner of the training.

    Returns:
        Tensor | None: 1 if so, else 0, (), on the device: the host need not
        wait for it. None if the loss is not scaled.

    Raises:
        TypeError: If the optimiser wrapper scales the loss and does not say.
    """
    wrapper = runner.optim_wrapper
    scaler = getattr(wrapper, 'loss_scaler', None)
    if scaler is None or not scaler.is_enabled():
        return None
    if not hasattr(wrapper, 'skipped'):
        raise TypeError(
            f'{type(wrapper).__name__} does not say which steps its loss '
            'scaler skipped, and a skipped step must not move teacher and '
            "codebook: write type='mmmoca.MixedPrecisionOptimWrapper' in "
            'optim_wrapper'
        )
    return wrapper.skipped


def mix_seed(*numbers: int) -> int:
    """A 63-bit seed from numbers whose neighbours get unlike seeds.

    Args:
        *numbers (int): Seed of the run, rank, iteration and the like.

    Returns:
        int: The same for the same numbers, in [0, 2**63).
    """
    state = np.random.SeedSequence(numbers).generate_state(1, np.uint64)
    return int(state[0] >> 1)


def images_per_step(runner: Runner, batch_size: int) -> int:
    """Images of an optimiser step, of all processes and micro-batches.

    Args:
        runner (Runner): The runner of the training.
        batch_size (int): Images of a micro-batch on one process.

    Returns:
        int: The global batch size.
    """
    micro_batches = runner.optim_wrapper._accumulative_counts
    return batch_size * get_world_size() * micro_batches


def optimizer_steps(runner: Runner) -> int:
    """Optimiser steps done, the one of the current iteration included.

    To be called in ``after_train_iter``.
    """
    return _to_steps(runner.iter + 1, runner)


def total_optimizer_steps(runner: Runner) -> int:
    """Optimiser steps of the whole run."""
    return _to_steps(runner.max_iters, runner)


def _to_steps(iterations: int, runner: Runner) -> int:
    return -(-iterations // runner.optim_wrapper._accumulative_counts)
