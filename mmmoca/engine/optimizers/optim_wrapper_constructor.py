# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Collection
from numbers import Real

from mmengine.optim import DefaultOptimWrapperConstructor
from torch import nn

from mmmoca.messages import listed
from mmmoca.models import PrototypeGenerator
from mmmoca.registry import OPTIM_WRAPPER_CONSTRUCTORS


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class MOCAOptimWrapperConstructor(DefaultOptimWrapperConstructor):
    """Puts prototypes and parameters without decay into their own groups.

    Biases and other 1-D parameters do not decay. The prototype generators
    have their own learning rate and weight decay, which this package's
    schedulers keep constant. ``paramwise_cfg`` accepts:

    - ``prototype_lr`` (float): Learning rate of the generators. Defaults to
      1e-4.
    - ``prototype_weight_decay`` (float): Their weight decay. Defaults to
      0.05.
    - ``custom_keys`` (dict[str, dict]): ``lr_mult`` and ``decay_mult`` for
      parameters whose names contain a key, as in MMEngine. If a name contains
      several keys, the longest one counts. These parameters get groups of
      their own. ``lr_mult=0`` freezes them. With ``decay_mult``, 1-D
      parameters decay as well. A schedule's ``eta_min`` is not multiplied,
      because it is one number for all groups.

    The ``constant`` key of a group names values that schedules must not
    change.

    Raises:
        ValueError: If ``paramwise_cfg`` has another key, or a number outside
            [0, 1000]; if a custom key is in the name of no trained parameter;
            or if the learning rate is still 'auto'.
    """

    def __init__(
        self, optim_wrapper_cfg: dict, paramwise_cfg: dict | None = None
    ) -> None:
        options = dict(
            prototype_lr=1e-4, prototype_weight_decay=0.05, custom_keys={}
        )
        super().__init__(optim_wrapper_cfg, options | (paramwise_cfg or {}))
        if self.base_lr == 'auto':
            raise ValueError(
                "lr='auto': call mmmoca.engine.complete_recipe(cfg), which "
                "replaces 'auto' with a number"
            )
        own = dict(self.paramwise_cfg)
        custom = own.pop('custom_keys')
        numbers = [name for name in options if name != 'custom_keys']
        _check(own, numbers, 'paramwise_cfg')
        for key, factors in custom.items():
            place = f'paramwise_cfg.custom_keys.{key}'
            _check(factors, ('lr_mult', 'decay_mult'), place)

    def add_params(
        self, params: list[dict], module: nn.Module, **kwargs
    ) -> None:
        """Sort all parameters of the model into the groups.

        Args:
            params (list[dict]): List that the groups are appended to, in
                place.
            module (nn.Module): The whole model.
        """
        options, parts = self.paramwise_cfg, module.modules()
        kinds = [m for m in parts if isinstance(m, PrototypeGenerator)]
        generators = {id(p) for part in kinds for p in part.parameters()}
        custom = options['custom_keys']
        keys = sorted(sorted(custom), key=len, reverse=True)
        groups: dict[tuple, list[nn.Parameter]] = {}
        trained = {
            n: p for n, p in module.named_parameters() if p.requires_grad
        }
        for name, parameter in trained.items():
            key = next((key for key in keys if key in name), '')
            kind = id(parameter) in generators, parameter.ndim < 2, key
            groups.setdefault(kind, []).append(parameter)
        if idle := [k for k in keys if not any(k in name for name in trained)]:
            raise ValueError(
                'paramwise_cfg.custom_keys: no trained parameter has '
                f'{listed(idle)} in its name. The names are {listed(trained)}'
            )
        for kind in sorted(groups):
            is_prototype, is_vector, key = kind
            lr, decay = self.base_lr, self.base_wd
            if is_prototype:
                lr = options['prototype_lr']
                decay = options['prototype_weight_decay']
            factors = custom.get(key, {})
            decay_mult = factors.get('decay_mult', int(not is_vector))
            # With lr_mult=0, a schedule would raise the rate to its eta_min.
            keeps = is_prototype or factors.get('lr_mult') == 0
            group = dict(params=groups[kind], constant=['lr'] * keeps)
            if is_prototype or not decay_mult:
                group['constant'].append('weight_decay')
            # If a value is None, the optimiser's default is used.
            if lr is not None:
                group['lr'] = lr * factors.get('lr_mult', 1)
            if decay is not None or not decay_mult:
                group['weight_decay'] = (
                    decay * decay_mult if decay_mult else 0.0
                )
            params.append(group)


def _check(numbers: dict, known: Collection[str], place: str) -> None:
    """Refuse unknown keys, and values that are not in [0, 1000]."""
    if not isinstance(numbers, dict):
        raise ValueError(f'{place}={numbers!r}: must be a dict')
    for name, value in numbers.items():
        right = isinstance(value, Real) and 0 <= value <= 1000
        if name not in known or not right:
            raise ValueError(
                f'{place} accepts {listed(known)} with numbers in [0, 1000], '
                f'got {name}={value}'
            )
