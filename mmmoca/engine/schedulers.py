# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""MMEngine's schedules, for the groups that follow one."""

from mmengine.optim import (
    CosineAnnealingLR,
    CosineAnnealingParamScheduler,
    LinearLR,
)

from mmmoca.registry import PARAM_SCHEDULERS

__all__ = [
    'CosineWeightDecay',
    'MainGroupsCosineAnnealingLR',
    'MainGroupsLinearLR',
]


class _SkipConstantGroups:
    """Leaves groups alone whose ``constant`` key names the parameter."""

    def _get_value(self) -> list:
        groups = self.optimizer.param_groups
        return [
            group[self.param_name]
            if self.param_name in group.get('constant', ())
            else value
            for group, value in zip(groups, super()._get_value())
        ]


@PARAM_SCHEDULERS.register_module()
class MainGroupsLinearLR(_SkipConstantGroups, LinearLR):
    """:class:`LinearLR` that spares the prototype generators."""


@PARAM_SCHEDULERS.register_module()
class MainGroupsCosineAnnealingLR(_SkipConstantGroups, CosineAnnealingLR):
    """:class:`CosineAnnealingLR` that spares the prototype generators."""


@PARAM_SCHEDULERS.register_module()
class CosineWeightDecay(_SkipConstantGroups, CosineAnnealingParamScheduler):
    """Weight decay along a cosine, from the optimiser's to ``eta_min``.

    Spares the prototype generators and whatever does not decay.
    """

    def __init__(self, optimizer, *args, **kwargs) -> None:
        super().__init__(optimizer, 'weight_decay', *args, **kwargs)
