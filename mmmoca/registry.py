# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Registries of scope ``mmmoca``, children of MMEngine's.

``type='mmmoca.X'`` resolves from any OpenMMLab config: MMEngine imports
``mmmoca.registry`` by the prefix, and each registry imports its own modules
from ``locations`` on first use, so no ``custom_imports`` is needed.
"""

from typing import Any

from mmengine import registry as mmengine
from mmengine.registry import DefaultScope, Registry


class _Registry(Registry):
    """A registry that looks up names in the scope of the run, too.

    MMEngine builds what a config takes from ``_base_ = 'mmmoca::...'`` in the
    scope ``mmmoca``, but it was written for the scope ``mmpretrain``, or for
    ``mmseg`` or ``mmdet``, which have other classes of MMCV's names.
    """

    def get(self, key: str) -> Any:
        """Get a registered class or function.

        Args:
            key (str): Its name. Without a scope the order is this package,
                the scope of the run, MMEngine, mmpretrain.

        Returns:
            The class or function, or None if the name is unknown.
        """
        found = super().get(key)
        if '.' not in key and key not in self.module_dict:
            # MMEngine has no public list of the scopes around this one.
            scopes = DefaultScope._instance_dict.values()
            run = [s.scope_name for s in scopes if s.scope_name != self.scope]
            if run and run[-1] != 'mmengine':
                found = super().get(f'{run[-1]}.{key}') or found
            found = found or super().get(f'mmpretrain.{key}')
        return found


def _child(
    parent: Registry, location: str = 'mmmoca.engine.parts'
) -> Registry:
    # MMEngine warns of a registry without a child in the scope, and of a child
    # without locations. Importing `mmmoca.checkpoints` registers the schemes
    # mmmoca-file:// and so on.
    return _Registry(
        parent.name,
        parent=parent,
        scope='mmmoca',
        locations=['mmmoca.checkpoints', location],
    )


MODELS = _child(mmengine.MODELS, 'mmmoca.models')
MODEL_WRAPPERS = _child(mmengine.MODEL_WRAPPERS, 'mmmoca.models')
WEIGHT_INITIALIZERS = _child(mmengine.WEIGHT_INITIALIZERS, 'mmmoca.models')
TASK_UTILS = _child(mmengine.TASK_UTILS, 'mmmoca.models')

RUNNERS = _child(mmengine.RUNNERS)
RUNNER_CONSTRUCTORS = _child(mmengine.RUNNER_CONSTRUCTORS)
LOOPS = _child(mmengine.LOOPS)
HOOKS = _child(mmengine.HOOKS)
LOG_PROCESSORS = _child(mmengine.LOG_PROCESSORS)
STRATEGIES = _child(mmengine.STRATEGIES)
OPTIMIZERS = _child(mmengine.OPTIMIZERS)
OPTIM_WRAPPERS = _child(mmengine.OPTIM_WRAPPERS)
OPTIM_WRAPPER_CONSTRUCTORS = _child(mmengine.OPTIM_WRAPPER_CONSTRUCTORS)
PARAM_SCHEDULERS = _child(mmengine.PARAM_SCHEDULERS)
INFERENCERS = _child(mmengine.INFERENCERS)

DATASETS = _child(mmengine.DATASETS, 'mmmoca.datasets')
DATA_SAMPLERS = _child(mmengine.DATA_SAMPLERS, 'mmmoca.datasets')
TRANSFORMS = _child(mmengine.TRANSFORMS, 'mmmoca.datasets')
FUNCTIONS = _child(mmengine.FUNCTIONS, 'mmmoca.datasets')

METRICS = _child(mmengine.METRICS, 'mmmoca.evaluation')
EVALUATOR = _child(mmengine.EVALUATOR, 'mmmoca.evaluation')

VISUALIZERS = _child(mmengine.VISUALIZERS, 'mmmoca.evaluation')
VISBACKENDS = _child(mmengine.VISBACKENDS, 'mmmoca.evaluation')
