# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a hook needs to know of optimiser steps."""

import numpy as np
from mmengine.dataset import InfiniteSampler
from mmengine.dist import get_world_size
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.utils.data import Sampler

from .recipe import INCOMPLETE, left_open

__all__ = [
    'check_hooks',
    'global_batch_size',
    'images_per_step',
    'is_infinite',
    'mix_seed',
    'optimizer_steps',
    'skipped',
    'stepped',
    'total_optimizer_steps',
    'unwrap_model',
]


def unwrap_model(model: nn.Module) -> nn.Module:
    """The algorithm itself, whatever wraps it for several processes."""
    while is_model_wrapper(model):
        model = model.module
    return model


def check_hooks(runner: Runner) -> None:
    """Refuse a run in which hooks would move a state never, or twice.

    Args:
        runner (Runner): The runner of a training.

    Raises:
        ValueError: If MOCA is trained without the hooks that move its
            codebook or its teacher, these are there for another model, one
            of this package's hooks is there twice, or the config still says
            'auto'.
    """
    for key in left_open(runner.cfg):
        raise ValueError(INCOMPLETE.format(key=key))
    has_state = hasattr(unwrap_model(runner.model), 'codebook')
    kinds = [
        {kind.__name__ for kind in type(hook).__mro__} for hook in runner.hooks
    ]
    for name, key, owns in (
        ('CodebookHook', 'codebook', 'codebook'),
        ('TeacherEMAHook', 'teacher_ema', 'teacher'),
        ('StepLogHook', 'step_log', None),
    ):
        count = sum(name in names for names in kinds)
        if count > 1:
            raise ValueError(
                f'{name} is there {count} times: keep default_hooks.{key} '
                'and take the other one out of custom_hooks'
            )
        if owns and has_state and not count:
            raise ValueError(
                f'there is no {name}, so that the {owns} would never move: '
                f"write default_hooks=dict({key}=dict(type='mmmoca.{name}'))"
            )
        if owns and count and not has_state:
            raise ValueError(
                f'{name} moves the {owns} of MOCA, and '
                f'{type(unwrap_model(runner.model)).__name__} has none: '
                'inherit _base_/runtime.py, not default_runtime.py'
            )


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
        *numbers (int): Seed of the run, rank, iteration and the like. Fewer
            or more of them make another seed.

    Returns:
        int: The same for the same numbers, in [0, 2**63).
    """
    # NumPy fills up with zeros: (s, n) alone would be (s, n, 0).
    entropy = len(numbers), *numbers
    state = np.random.SeedSequence(entropy).generate_state(1, np.uint64)
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


def global_batch_size(runner: Runner) -> int | None:
    """Images of an optimiser step, None if the loader does not tell.

    Args:
        runner (Runner): The runner of the training.

    Returns:
        int | None: See :func:`images_per_step`. None where a batch sampler
        of the user's own makes the batches.
    """
    batch_size = getattr(runner.train_dataloader, 'batch_size', None)
    if batch_size is None:
        return None
    return images_per_step(runner, batch_size)


def is_infinite(sampler: Sampler) -> bool:
    """Whether a sampler goes on for ever, so that all batches are full."""
    infinite = getattr(sampler, 'infinite', False)
    return infinite or isinstance(sampler, InfiniteSampler)


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
