# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""MMEngine's schedules by optimiser step, for the groups that follow one."""

from mmengine.optim import (
    CosineAnnealingLR,
    CosineAnnealingParamScheduler,
    LinearLR,
)
from mmengine.optim.scheduler.param_scheduler import INF

from mmmoca.registry import PARAM_SCHEDULERS

__all__ = [
    'CosineWeightDecay',
    'MainGroupsCosineAnnealingLR',
    'MainGroupsLinearLR',
]


class _OptimizerStepSchedule:
    """Counts optimiser steps and leaves some groups alone.

    Under gradient accumulation an iteration-based schedule advances with the
    optimiser, not with every micro-batch: ``begin``, ``end`` and ``T_max``
    are given in iterations, as OpenMMLab's configs have it, and converted.
    A group whose ``constant`` key names the parameter keeps its value.
    """

    def __init__(
        self, optimizer, *args, begin=0, end=INF, by_epoch=True, **kwargs
    ) -> None:
        if not by_epoch:
            micro_batches = getattr(optimizer, '_accumulative_counts', 1)
            begin = begin // micro_batches
            end = end if end == INF else -(-end // micro_batches)
            if kwargs.get('T_max') is not None:
                kwargs['T_max'] /= micro_batches
        super().__init__(
            optimizer,
            *args,
            begin=begin,
            end=end,
            by_epoch=by_epoch,
            **kwargs,
        )

    def step(self) -> None:
        """Advance if the iteration ended in an optimiser step."""
        # The base class makes its first step while it is being built.
        building = self._global_step < 0
        should_update = getattr(self.optimizer, 'should_update', None)
        if building or self.by_epoch or not should_update or should_update():
            super().step()

    def _get_value(self) -> list:
        groups = self.optimizer.param_groups
        return [
            group[self.param_name]
            if self.param_name in group.get('constant', ())
            else value
            for group, value in zip(groups, super()._get_value())
        ]


@PARAM_SCHEDULERS.register_module()
class MainGroupsLinearLR(_OptimizerStepSchedule, LinearLR):
    """:class:`LinearLR` that spares the prototype generators."""


@PARAM_SCHEDULERS.register_module()
class MainGroupsCosineAnnealingLR(_OptimizerStepSchedule, CosineAnnealingLR):
    """:class:`CosineAnnealingLR` that spares the prototype generators."""


@PARAM_SCHEDULERS.register_module()
class CosineWeightDecay(_OptimizerStepSchedule, CosineAnnealingParamScheduler):
    """Weight decay along a cosine, from the optimiser's to ``eta_min``.

    Spares the prototype generators and whatever does not decay.
    """

    def __init__(self, optimizer, *args, **kwargs) -> None:
        super().__init__(optimizer, 'weight_decay', *args, **kwargs)
