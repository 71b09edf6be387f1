# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Facts of a run and its optimiser steps, for hooks.

What MMEngine (0.10) has no public name for is asked of it here alone.
"""

import numpy as np
from mmengine.dataset import BaseDataset
from mmengine.hooks import LoggerHook
from mmengine.model import is_model_wrapper
from mmengine.optim import OptimWrapper
from mmengine.runner import BaseLoop, Runner, find_latest_checkpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader


def unwrap_model(model: nn.Module) -> nn.Module:
    """The model without its wrappers for several processes."""
    while is_model_wrapper(model):
        model = model.module
    return model


def built_loops(runner: Runner) -> list[BaseLoop]:
    """The loops of a run: those that it does not use are still configs."""
    return [x for x in vars(runner).values() if isinstance(x, BaseLoop)]


def built_loaders(runner: Runner) -> list[DataLoader]:
    """The loaders of these loops."""
    parts = [x for loop in built_loops(runner) for x in vars(loop).values()]
    return [part for part in parts if isinstance(part, DataLoader)]


def log_interval(runner: Runner) -> int:
    """Steps from one log line to the next, of the most frequent logger."""
    return min(
        (h.interval for h in runner.hooks if isinstance(h, LoggerHook)),
        default=100,
    )


def is_training(runner: Runner) -> bool:
    """Whether a runner trains, from its ``before_run`` on."""
    return isinstance(runner._train_loop, BaseLoop)


def hand_over(runner: Runner, dataset: BaseDataset) -> None:
    """Let a run that has not begun read a training set that is built."""
    runner._train_dataloader['dataset'] = dataset


def resumes(runner: Runner) -> bool:
    """Whether a run goes on from a checkpoint."""
    return runner._resume


def load_address(runner: Runner) -> str:
    """What a run is to load; empty if it is nothing, or not known yet."""
    return runner._load_from or ''


def set_load_address(runner: Runner, address: str | None) -> None:
    """Let a run load something else, or nothing, in ``before_run``."""
    runner._load_from = address


def has_loaded(runner: Runner) -> bool:
    """Whether a run has loaded its checkpoint."""
    return runner._has_loaded


def micro_batches(wrapper: OptimWrapper) -> int:
    """Iterations of an optimiser step."""
    return wrapper._accumulative_counts


def stepped(runner: Runner) -> bool:
    """Whether the iteration that just ran ended in an optimiser step."""
    return runner.optim_wrapper.should_update()


def skipped(runner: Runner) -> Tensor | None:
    """Whether the loss scaler skipped the last optimiser step.

    Args:
        runner (Runner): The runner of the training.

    Returns:
        Tensor | None: 1 if it did, else 0, (), on the device, so that the
        host need not wait. None if the loss is not scaled.

    Raises:
        TypeError: If the optimiser wrapper scales the loss and has no
            ``skipped``.
    """
    wrapper = runner.optim_wrapper
    scaler = getattr(wrapper, 'loss_scaler', None)
    if scaler is None or not scaler.is_enabled():
        return None
    if not hasattr(wrapper, 'skipped'):
        raise TypeError(
            'a step that a loss scaler skips must not move the teacher: write '
            "optim_wrapper.type='mmmoca.MixedPrecisionOptimWrapper'"
        )
    return wrapper.skipped


def advice_to_go_on(runner: Runner) -> str:
    """What to do after numbers that are not finite, for an error."""
    last = find_latest_checkpoint(runner.work_dir)
    return f'Resume from {last}' if last else 'Start again'


def mix_seed(*numbers: int) -> int:
    """Hash numbers into a 63-bit seed.

    Similar numbers give unrelated seeds, and (s, n) differs from (s, n, 0).

    Args:
        *numbers (int): Seed of the run, rank, iteration and so on.

    Returns:
        int: The same for the same numbers, in [0, 2**63).
    """
    # NumPy pads with zeros: without the length (s, n) equals (s, n, 0).
    entropy = len(numbers), *numbers
    state = np.random.SeedSequence(entropy).generate_state(1, np.uint64)
    return int(state[0]) >> 1


def optimizer_steps(runner: Runner, iterations: int) -> int:
    """Optimiser steps of a number of iterations, an unfinished one too."""
    return -(-iterations // micro_batches(runner.optim_wrapper))


def stop_workers(runner: Runner) -> None:
    """End the processes of loaders whose workers are persistent.

    Left alone, PyTorch (2.11) waits five seconds for each of them when a
    program on a GPU ends: more than a minute for 16.

    Args:
        runner (Runner): Its loops hold the loaders. They can be used again.
    """
    for loader in built_loaders(runner):
        # Of PyTorch 2.11.
        if (iterator := loader._iterator) is not None:
            iterator._shutdown_workers()
            loader._iterator = None
