# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a hook needs to know of optimiser steps and wrapped models."""

import numpy as np
from mmengine.dist import get_world_size
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from torch import nn

__all__ = [
    'images_per_step',
    'mix_seed',
    'optimizer_steps',
    'stepped',
    'total_optimizer_steps',
    'unwrap_model',
]


def unwrap_model(model: nn.Module) -> nn.Module:
    """The algorithm itself, whatever wraps it for several processes."""
    while is_model_wrapper(model):
        model = model.module
    return model


def stepped(runner: Runner) -> bool:
    """Whether the iteration that just ran ended in an optimiser step."""
    return runner.optim_wrapper.should_update()


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
