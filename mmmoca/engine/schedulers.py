# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Schedules by optimiser step, for the parameter groups that follow one."""

import math

from mmengine.optim.scheduler.param_scheduler import _ParamScheduler

from mmmoca.registry import PARAM_SCHEDULERS

__all__ = ['CosineWeightDecay', 'WarmupCosineLR']


@PARAM_SCHEDULERS.register_module()
class WarmupCosineLR(_ParamScheduler):
    """The learning rate of a whole run: linear warm-up from 0, then a cosine.

    It follows the length of the run, which the runner fills in: change
    ``train_cfg.max_epochs`` (``max_iters``) and nothing else. The cosine goes
    towards its end and would reach it after ``period`` times the run; 1.25
    cuts it before, as the authors' code does.

    Lengths are given in epochs or iterations, as OpenMMLab's configs have it;
    by iteration, the schedule advances with the optimiser, not with every
    micro-batch. A group whose ``constant`` key names the parameter keeps its
    value, such as the rate of the prototype generators.

    Args:
        optimizer (OptimWrapper): The optimiser.
        warmup (float): Length of the warm-up in epochs, or in iterations
            with ``by_epoch=False``; below 1, as a share of the run. Defaults
            to 0.
        period (float): Defaults to 1.
        eta_min_ratio (float): End of the cosine, as a share of the base
            value. Defaults to 0.
        eta_min (float, optional): End of the cosine, for all groups alike.
        end (int): Length of the run. The runner fills it in.
        by_epoch (bool): Defaults to True; with ``convert_to_iter_based=True``
            lengths are given in epochs and the rate moves in every step.
        **kwargs: ``last_step`` and ``verbose`` of MMEngine's schedulers.

    Raises:
        ValueError: If the warm-up is negative or as long as the run, or the
            period is below 1.
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
        if not 0 <= warmup < max(1, end) or period < 1:
            raise ValueError(
                f'warmup is {warmup:g} of {end} and period {period:g}: write '
                'a warmup from 0 to below the length of the run, and a period '
                'of 1 or more'
            )
        micro_batches = 1 if by_epoch else optimizer._accumulative_counts
        warmup = warmup if warmup >= 1 else warmup * end
        self.warmup = round(warmup / micro_batches)
        self.period = period
        self.eta_min, self.eta_min_ratio = eta_min, eta_min_ratio
        super().__init__(
            optimizer,
            self.PARAMETER,
            begin=0,
            end=-(-end // micro_batches),
            by_epoch=by_epoch,
            **kwargs,
        )

    @classmethod
    def build_iter_from_epoch(
        cls, *args, end: int, epoch_length: int, warmup: float = 0.0, **kwargs
    ) -> 'WarmupCosineLR':
        """Build it by iteration from what a config says in epochs."""
        # BatchSizeHook, which knows the images, reports an epoch of no step.
        epoch_length = max(1, epoch_length)
        kwargs |= dict(
            warmup=warmup * epoch_length if warmup >= 1 else warmup,
            end=end * epoch_length,
            by_epoch=False,
        )
        return cls(*args, **kwargs)

    def load_state_dict(self, state_dict: dict) -> None:
        """Go on from the step and the base values of the state.

        The config says all else: a run that is resumed with another length
        follows the new one.
        """
        self._global_step = state_dict['_global_step']
        self.base_values = state_dict['base_values']
        self.last_step = min(self._global_step, self.end - 1)

    def step(self) -> None:
        """Advance if the iteration ended in an optimiser step."""
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
            last = self.eta_min
            if last is None:
                last = self.eta_min_ratio * base
            return last + (base - last) * cosine

        return list(map(value, self.optimizer.param_groups, self.base_values))


@PARAM_SCHEDULERS.register_module()
class CosineWeightDecay(WarmupCosineLR):
    """Weight decay along a cosine, from the optimiser's to ``eta_min``.

    It spares the prototype generators and whatever does not decay.
    """

    PARAMETER = 'weight_decay'
