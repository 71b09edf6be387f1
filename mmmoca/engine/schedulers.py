# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Schedules of learning rate and weight decay that count optimiser steps."""

import math

from mmengine.optim.scheduler.param_scheduler import _ParamScheduler

from mmmoca.registry import PARAM_SCHEDULERS

from .mmengine import micro_batches


@PARAM_SCHEDULERS.register_module()
class WarmupCosineLR(_ParamScheduler):
    """The learning rate of a whole run: linear warm-up from 0, then a cosine.

    The runner fills in the length of the run, so ``train_cfg.max_epochs``
    (or ``max_iters``) is the only key that states it. The cosine would reach
    its end after ``period`` times this length. In the authors' code the run
    ends earlier than the cosine: ``period`` is 1.25.

    Lengths are in epochs or iterations, as in OpenMMLab's configs. With
    iterations, the schedule advances with the optimiser, not with every
    micro-batch. The schedule does not change a value that the ``constant`` key
    of a parameter group names, such as the prototype generators' rate.

    Args:
        optimizer (OptimWrapper): The optimiser.
        warmup (float): Length of the warm-up in epochs, or in iterations
            with ``by_epoch=False``. A number below 1 is a share of the run.
            Defaults to 0.
        period (float): When the cosine reaches its end, as a multiple of the
            length of the run. Defaults to 1.
        eta_min_ratio (float): End of the cosine, as a share of the base
            value. Defaults to 0.
        eta_min (float, optional): End of the cosine, the same value for all
            groups. Overrides ``eta_min_ratio``.
        end (int): Length of the run. The runner fills it in.
        by_epoch (bool): Whether lengths are in epochs. Defaults to True. With
            ``convert_to_iter_based=True`` the rate still changes in every
            step.
        **kwargs: ``last_step`` and ``verbose`` of MMEngine's schedulers.

    Raises:
        ValueError: If the warm-up is negative or as long as the run, if the
            period is below 1, or if the run has no iteration because the
            images do not fill a batch.
    """

    PARAMETER = 'lr'

    def __init__(
        self,
        optimizer,
        warmup: float = 0.0,
        period: float = 1.0,
        eta_min_ratio: float = 0.0,
        eta_min: float | None = None,
        *,
        end: int,
        by_epoch: bool = True,
        **kwargs,
    ) -> None:
        if not 0 <= warmup < max(1, end):
            unit = 'epochs' if by_epoch else 'iterations'
            raise ValueError(
                f'a warm-up of {warmup:g} {unit} does not fit into a run of '
                f'{end}: write warmup=0.05, a share of the run, into the '
                'param_scheduler'
            )
        if period < 1:
            raise ValueError(f'period={period:g} must be 1 or more')
        parts = 1 if by_epoch else micro_batches(optimizer)
        warmup = warmup if warmup >= 1 else warmup * end
        self.warmup = round(warmup / parts)
        self.period = period
        self.eta_min, self.eta_min_ratio = eta_min, eta_min_ratio
        super().__init__(
            optimizer,
            self.PARAMETER,
            begin=0,
            end=-(-end // parts),
            by_epoch=by_epoch,
            **kwargs,
        )

    @classmethod
    def build_iter_from_epoch(
        cls, *args, end: int, epoch_length: int, warmup: float = 0.0, **kwargs
    ) -> 'WarmupCosineLR':
        """Build an iteration-based schedule from lengths in epochs."""
        kwargs |= dict(
            warmup=warmup * epoch_length if warmup >= 1 else warmup,
            end=end * epoch_length,
            by_epoch=False,
        )
        return cls(*args, **kwargs)

    def load_state_dict(self, state_dict: dict) -> None:
        """Load the step and the base values only.

        The config determines the rest, so that a run can be resumed with
        another length.
        """
        self._global_step = state_dict['_global_step']
        self.base_values = state_dict['base_values']
        self.last_step = min(self._global_step, self.end - 1)

    def step(self) -> None:
        """Advance by an epoch, or by an optimiser step if one has ended."""
        if self.by_epoch or self.optimizer.should_update():
            super().step()

    def _get_value(self) -> list[float]:
        step, warmup = self.last_step, self.warmup
        progress = (step - warmup) / (self.period * self.end - warmup)
        cosine = (1 + math.cos(math.pi * progress)) / 2

        def value(group: dict, base: float) -> float:
            if self.param_name in group.get('constant', ()):
                return group[self.param_name]
            if step < warmup:
                return base * step / max(1, warmup - 1)
            end = self.eta_min_ratio * base
            end = end if self.eta_min is None else self.eta_min
            return end + (base - end) * cosine

        return list(map(value, self.optimizer.param_groups, self.base_values))


@PARAM_SCHEDULERS.register_module()
class CosineWeightDecay(WarmupCosineLR):
    """Weight decay that follows a cosine from the base value to ``eta_min``.

    The weight decay of prototype generators and of parameters without decay
    does not change.
    """

    PARAMETER = 'weight_decay'
