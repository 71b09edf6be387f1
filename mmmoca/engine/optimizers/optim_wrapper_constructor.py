# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmengine.optim import DefaultOptimWrapperConstructor
from torch import nn

from mmmoca.models import PrototypeGenerator
from mmmoca.registry import OPTIM_WRAPPER_CONSTRUCTORS


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class MOCAOptimWrapperConstructor(DefaultOptimWrapperConstructor):
    """Builds four parameter groups: model and prototypes, decay or not.

    Biases and other 1-D parameters do not decay. The prototype generators
    have their own learning rate and weight decay, which this package's
    schedulers keep constant. ``paramwise_cfg`` takes:

    - ``prototype_lr`` (float): Learning rate of the generators. Defaults to
      1e-4.
    - ``prototype_weight_decay`` (float): Their weight decay. Defaults to
      0.05.

    The ``constant`` key of a group names what schedules must not change.

    Raises:
        ValueError: If ``paramwise_cfg`` has another key or a negative
            number, or the learning rate is still 'auto'.
    """

    def __init__(
        self, optim_wrapper_cfg: dict, paramwise_cfg: dict | None = None
    ) -> None:
        options = dict(prototype_lr=1e-4, prototype_weight_decay=0.05)
        super().__init__(optim_wrapper_cfg, options | (paramwise_cfg or {}))
        if self.base_lr == 'auto':
            raise ValueError(
                "lr='auto': mmmoca.engine.complete_recipe(cfg) writes a number"
            )
        for name, value in self.paramwise_cfg.items():
            if name not in options or not 0 <= value <= 1000:
                raise ValueError(
                    f'paramwise_cfg takes {[*options]} in [0, 1000], '
                    f'got {name}={value}'
                )

    def add_params(
        self, params: list[dict], module: nn.Module, **kwargs
    ) -> None:
        """Sort all parameters of the model into the groups.

        Args:
            params (list[dict]): Gets the groups, in place.
            module (nn.Module): The whole model.
        """
        options, parts = self.paramwise_cfg, module.modules()
        kinds = [m for m in parts if isinstance(m, PrototypeGenerator)]
        generators = {id(p) for part in kinds for p in part.parameters()}
        trained = [p for p in module.parameters() if p.requires_grad]
        lr, decay = options['prototype_lr'], options['prototype_weight_decay']
        for is_prototype, settings in (
            (False, dict(lr=self.base_lr, weight_decay=self.base_wd)),
            (True, dict(lr=lr, weight_decay=decay)),
        ):
            own = [p for p in trained if (id(p) in generators) == is_prototype]
            for decays in (True, False):
                group = dict(settings, constant=['lr'] * is_prototype)
                if not decays:
                    group['weight_decay'] = 0.0
                if is_prototype or not decays:
                    group['constant'].append('weight_decay')
                # The optimiser has defaults for settings that are None.
                group = {k: v for k, v in group.items() if v is not None}
                group['params'] = [p for p in own if (p.ndim > 1) == decays]
                if group['params']:
                    params.append(group)
