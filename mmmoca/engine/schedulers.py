# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Schedules by optimiser step, for the parameter groups that follow one."""

import math

from mmengine.optim import (
    CosineAnnealingLR,
    CosineAnnealingParamScheduler,
    LinearLR,
)
from mmengine.optim.scheduler.lr_scheduler import LRSchedulerMixin
from mmengine.optim.scheduler.param_scheduler import INF, _ParamScheduler

from mmmoca.registry import PARAM_SCHEDULERS

__all__ = [
    'CosineWeightDecay',
    'MainGroupsCosineAnnealingLR',
    'MainGroupsLinearLR',
    'WarmupCosineLR',
]


class _OptimizerStepSchedule:
    """Counts optimiser steps and leaves some groups alone.

    Under gradient accumulation an iteration-based schedule advances with the
    optimiser, not with every micro-batch: ``begin``, ``end`` and the like are
    given in iterations, as OpenMMLab's configs have it, and converted. A
    group whose ``constant`` key names the parameter keeps its value.
    """

    def __init__(
        self, optimizer, *args, begin=0, end=INF, by_epoch=True, **kwargs
    ) -> None:
        if not by_epoch:
            micro_batches = getattr(optimizer, '_accumulative_counts', 1)
            begin //= micro_batches
            end = -(-end // micro_batches)
            if kwargs.get('T_max') is not None:
                kwargs['T_max'] /= micro_batches
        kwargs |= dict(begin=begin, end=end, by_epoch=by_epoch)
        super().__init__(optimizer, *args, **kwargs)

    def load_state_dict(self, state_dict: dict) -> None:
        """Go on from the step of the state; the config says all else.

        So a run that is resumed with another length follows the new one, and
        the state may be that of another schedule of the same run.
        """
        self._global_step = state_dict['_global_step']
        last = min(self._global_step, self.end - 1) - self.begin
        self.last_step = max(-1, last)
        if state_dict['param_name'] == self.param_name:
            self.base_values = state_dict['base_values']

    def step(self) -> None:
        """Advance if the iteration ended in an optimiser step."""
        # The base class makes its first step while it is being built.
        building = self._global_step < 0
        should_update = getattr(self.optimizer, 'should_update', None)
        within = not (building or self.by_epoch) and should_update is not None
        if within and not should_update():
            return
        groups = self.optimizer.param_groups
        before = [group[self.param_name] for group in groups]
        super().step()
        for group, value in zip(groups, before):
            if self.param_name in group.get('constant', ()):
                group[self.param_name] = value


@PARAM_SCHEDULERS.register_module()
class WarmupCosineLR(
    _OptimizerStepSchedule, LRSchedulerMixin, _ParamScheduler
):
    """The learning rate of a whole run: linear warm-up from 0, then a cosine.

    It follows the length of the run, which the runner fills in: change
    ``train_cfg.max_epochs`` (``max_iters``) and nothing else. The cosine goes
    towards ``eta_min_ratio`` of the base rate and would reach it after
    ``period`` times the run; 1.25 cuts it before, as the authors' code does.
    The prototype generators keep their rate.

    Args:
        optimizer (OptimWrapper): The optimiser.
        warmup (float): Length of the warm-up in epochs, or in iterations
            with ``by_epoch=False``; below 1, as a share of the run.
        period (float): Defaults to 1.
        eta_min_ratio (float): Defaults to 0.
        end (int): Length of the run. The runner fills it in.
        by_epoch (bool): Defaults to True; with ``convert_to_iter_based=True``
            lengths are given in epochs and the rate moves in every step.
        **kwargs: ``last_step`` and ``verbose`` of MMEngine's schedulers.

    Raises:
        ValueError: If the warm-up is negative or as long as the run, or the
            period is below 1.
    """

    def __init__(
        self,
        optimizer,
        warmup: float,
        period: float = 1.0,
        eta_min_ratio: float = 0.0,
        *,
        end: int,
        by_epoch: bool = True,
        **kwargs,
    ) -> None:
        if not 0 <= warmup < max(1, end):
            unit = 'epochs' if by_epoch else 'iterations'
            raise ValueError(
                f'param_scheduler.warmup is {warmup:g} of {end} {unit}: it '
                'must lie from 0 to below the length of the run'
            )
        if period < 1:
            raise ValueError(
                f'period={period} would raise the learning rate again before '
                'the end of the run: write 1 or more'
            )
        if not by_epoch and warmup >= 1:
            micro_batches = getattr(optimizer, '_accumulative_counts', 1)
            warmup = -(-warmup // micro_batches)
        self.warmup, self.period = warmup, period
        self.eta_min_ratio = eta_min_ratio
        super().__init__(
            optimizer, begin=0, end=end, by_epoch=by_epoch, **kwargs
        )

    @classmethod
    def build_iter_from_epoch(
        cls, *args, warmup: float, end: int, epoch_length: int, **kwargs
    ) -> 'WarmupCosineLR':
        """Build it by iteration from what a config says in epochs."""
        # BatchSizeHook, which knows the images, reports an epoch of no step.
        epoch_length = max(1, epoch_length)
        warmup = warmup * end if warmup < 1 else warmup
        kwargs |= dict(
            warmup=round(warmup * epoch_length),
            end=end * epoch_length,
            by_epoch=False,
        )
        return cls(*args, **kwargs)

    def _get_value(self) -> list[float]:
        step, warmup = self.last_step, self.warmup
        warmup = round(warmup * self.end if warmup < 1 else warmup)
        if step < warmup:
            factor = step / max(1, warmup - 1)
        else:
            progress = (step - warmup) / (self.period * self.end - warmup)
            cosine = (1 + math.cos(math.pi * progress)) / 2
            factor = self.eta_min_ratio + (1 - self.eta_min_ratio) * cosine
        return [base * factor for base in self.base_values]


@PARAM_SCHEDULERS.register_module()
class CosineWeightDecay(_OptimizerStepSchedule, CosineAnnealingParamScheduler):
    """Weight decay along a cosine, from the optimiser's to ``eta_min``.

    It follows the length of the run, which the runner fills in, and spares
    the prototype generators and whatever does not decay.
    """

    def __init__(self, optimizer, *args, **kwargs) -> None:
        super().__init__(optimizer, 'weight_decay', *args, **kwargs)


@PARAM_SCHEDULERS.register_module()
class MainGroupsLinearLR(_OptimizerStepSchedule, LinearLR):
    """:class:`LinearLR` that spares the prototype generators."""


@PARAM_SCHEDULERS.register_module()
class MainGroupsCosineAnnealingLR(_OptimizerStepSchedule, CosineAnnealingLR):
    """:class:`CosineAnnealingLR` that spares the prototype generators."""
