# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import math
from numbers import Real

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor, nn

from mmmoca.engine.steps import optimizer_steps, skipped, stepped, unwrap_model
from mmmoca.registry import HOOKS


@HOOKS.register_module()
class TeacherEMAHook(Hook):
    """Moves the teacher towards the student after each optimiser step.

    The momentum follows a cosine from ``momentum`` to ``end_momentum`` over
    the run. It depends on the number of steps done, so there is no counter to
    resume. A step that the loss scaler skips does not change the teacher.

    Args:
        momentum (float | str): m_0, in [0, 1]. Defaults to 0.99 (paper, Table
            11b; release v1.0 has 0.994). 'auto' stands for a number that
            ``complete_recipe`` computes.
        end_momentum (float): m_T, in [0, 1]. Defaults to 1 (paper), which
            freezes the teacher of a short run too early.

    Raises:
        ValueError: If a momentum is no number in [0, 1]. Before training, if
            ``momentum`` is still 'auto'; ``tools/test.py`` accepts 'auto'.
    """

    def __init__(
        self, momentum: float | str = 0.99, end_momentum: float = 1.0
    ) -> None:
        numbers = [end_momentum, *([momentum] * (momentum != 'auto'))]
        if not all(isinstance(n, Real) and 0 <= n <= 1 for n in numbers):
            raise ValueError(
                f'momentum and end_momentum must be in [0, 1], got {momentum} '
                f'and {end_momentum}'
            )
        self.momentum = momentum
        self.end_momentum = end_momentum

    def before_train(self, runner: Runner) -> None:
        """Check that a number has replaced 'auto'."""
        if self.momentum == 'auto':
            raise ValueError(
                "momentum='auto': call mmmoca.engine.complete_recipe(cfg), "
                "which replaces 'auto' with a number"
            )

    def after_train_iter(self, runner: Runner, *_, **__) -> None:
        """Update the teacher if the iteration ended an optimiser step."""
        if not stepped(runner):
            return
        momentum = self.momentum_at(
            optimizer_steps(runner, runner.iter + 1),
            optimizer_steps(runner, runner.max_iters),
        )
        if not (isinstance(momentum, Real) and 0 <= momentum <= 1):
            raise ValueError(
                f'{type(self).__name__}.momentum_at must return a number '
                f'from 0 to 1, got {momentum}'
            )
        model = unwrap_model(runner.model)
        update_teacher(
            model.teacher, model.backbone, momentum, skipped(runner)
        )
        runner.message_hub.update_scalar('train/momentum', momentum)

    def momentum_at(self, step: int, total_steps: int) -> float:
        """Return the momentum after a step. Subclasses may override this.

        Args:
            step (int): t, optimiser steps done, from 1 to T.
            total_steps (int): T, optimiser steps of the run.

        Returns:
            float: m(t), see :func:`cosine_momentum`.
        """
        return cosine_momentum(
            self.momentum, step, total_steps, self.end_momentum
        )


def cosine_momentum(
    initial: float, step: int, total_steps: int, end: float = 1.0
) -> float:
    """Compute m(t) = m_T - (1 + cos(pi t / T)) / 2 * (m_T - m_0).

    Args:
        initial (float): m_0.
        step (int): t, optimiser steps done.
        total_steps (int): T, optimiser steps of the run.
        end (float): m_T. Defaults to 1.

    Returns:
        float: Momentum, from m_0 at t=0 to m_T at t=T.
    """
    cosine = (1 + math.cos(math.pi * step / total_steps)) / 2
    return end - cosine * (end - initial)


@torch.no_grad()
def update_teacher(
    teacher: nn.Module,
    student: nn.Module,
    momentum: float,
    skip: Tensor | None = None,
) -> None:
    """Update theta_T <- m theta_T + (1 - m) theta_S, trained parameters only.

    Args:
        teacher (nn.Module): Updated in place.
        student (nn.Module): A model of the same architecture.
        momentum (float): m.
        skip (Tensor, optional): A scalar, (), on the device: 1 leaves the
            teacher as it is, 0 updates it. Defaults to None, which means 0.
    """
    pairs = [
        (target, source)
        for target, source in zip(teacher.parameters(), student.parameters())
        if source.requires_grad
    ]
    if not pairs:
        return  # the student is frozen
    targets, sources = zip(*pairs)
    weight = 1 - momentum
    if skip is not None:
        weight = [(1 - skip) * weight] * len(pairs)
    torch._foreach_lerp_(list(targets), list(sources), weight)
