# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Facts about a run and its optimiser steps, for hooks."""

import os
from pathlib import Path

import numpy as np
from mmengine.hooks import Hook, LoggerHook
from mmengine.model import BaseTTAModel, is_model_wrapper
from mmengine.runner import Runner, find_latest_checkpoint
from torch import Tensor, nn

from .mmengine import micro_batches


class DivergedError(RuntimeError):
    """Numbers of a run are not finite. Another learning rate may help.

    Attributes:
        exit_status (int): Exit status of a program that this error ends.
    """

    exit_status = os.EX_DATAERR


def unwrap_model(model: nn.Module) -> nn.Module:
    """Return the model without wrappers, such as those of DDP or TTA."""
    while is_model_wrapper(model) or isinstance(model, BaseTTAModel):
        model = model.module
    return model


def fewest_images(
    images: int,
    batch: int,
    iterations: int,
    micro_batches: int,
    keeps_rest: bool,
) -> int:
    """Count the images in a run's smallest optimiser step.

    The last step of the run may have fewer micro-batches. Any step may contain
    the last batch of an epoch, which may not be full.

    Args:
        images (int): Number of images in the training set.
        batch (int): Number of images in an iteration, on all processes
            together.
        iterations (int): Number of iterations in the run.
        micro_batches (int): Number of iterations in a step.
        keeps_rest (bool): Whether the last batch of an epoch is used even if
            it is not full.

    Returns:
        int: A lower bound of the number of images in any step.
    """
    count = iterations % micro_batches or micro_batches
    fewest = count * batch
    if keeps_rest:
        epochs = -(-count // -(-images // batch))
        fewest -= epochs * (-images % batch)
    return fewest


def log_interval(runner: Runner) -> int:
    """Return the shortest interval of log lines, in iterations."""
    return min(
        (h.interval for h in runner.hooks if isinstance(h, LoggerHook)),
        default=100,
    )


def log_is_due(hook: Hook, runner: Runner, batch_idx: int) -> bool:
    """Return whether a log line is written after an iteration.

    Args:
        hook (Hook): The hook that asks.
        runner (Runner): The runner.
        batch_idx (int): Index of the iteration in its epoch.
    """
    return (
        hook.is_last_train_iter(runner)
        or hook.end_of_epoch(runner.train_dataloader, batch_idx)
        or hook.every_n_inner_iters(batch_idx, log_interval(runner))
    )


def stepped(runner: Runner) -> bool:
    """Return whether the last iteration ended in an optimiser step."""
    return runner.optim_wrapper.should_update()


def skipped(runner: Runner) -> Tensor | None:
    """Return whether the loss scaler skipped the last optimiser step.

    Args:
        runner (Runner): The runner of the training run.

    Returns:
        Tensor | None: 1 if the step was skipped, otherwise 0, of shape (). The
        tensor stays on the device, so that the host need not wait. None if the
        loss is not scaled.

    Raises:
        TypeError: If the optimiser wrapper scales the loss but has no
            attribute ``skipped``.
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
    """Return the first words of the advice to a user after divergence."""
    last = find_latest_checkpoint(runner.work_dir)
    # In a copied work dir, `last_checkpoint` names a file of the original.
    own = last and os.path.samefile(Path(last).parent, runner.work_dir)
    return f'Resume from {last}' if own else 'Start again'


def mix_seed(*numbers: int) -> int:
    """Hash numbers into a 63-bit seed.

    Similar numbers give unrelated seeds, and so do (s, n) and (s, n, 0).

    Args:
        *numbers (int): Seed of the run, rank, iteration and so on.

    Returns:
        int: The seed, in [0, 2**63). It depends only on the numbers.
    """
    # NumPy pads with zeros: without the length, (s, n) and (s, n, 0) would
    # give the same seed.
    entropy = len(numbers), *numbers
    state = np.random.SeedSequence(entropy).generate_state(1, np.uint64)
    return int(state[0]) >> 1


def optimizer_steps(runner: Runner, iterations: int) -> int:
    """Count the optimiser steps that a number of iterations takes.

    An unfinished step counts, too.
    """
    return -(-iterations // micro_batches(runner.optim_wrapper))
