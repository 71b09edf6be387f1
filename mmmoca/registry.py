# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Registries of the scope ``mmmoca``, children of MMEngine's registries.

``type='mmmoca.X'`` works in any OpenMMLab config without ``custom_imports``:
MMEngine imports ``mmmoca.registry`` because of the prefix, and each registry
imports the modules in its ``locations`` on first use.
"""

from typing import Any

from mmengine import registry as mmengine
from mmengine.registry import DefaultScope, Registry


class _Registry(Registry):
    """A registry that also looks up names in the scope of the run.

    MMEngine uses the scope ``mmmoca`` to build the parts that a config
    inherits with ``_base_ = 'mmmoca::...'``. These parts were written for the
    scope ``mmpretrain``, ``mmseg`` or ``mmdet``. mmseg and mmdet have their
    own classes under some of MMCV's names, so the scope of the run takes
    precedence over MMEngine's registries, which contain MMCV's classes.
    """

    def get(self, key: str) -> Any:
        """Get a registered class or function.

        Args:
            key (str): Its name. A name without a scope is looked up in this
                package, the scope of the run, MMEngine and mmpretrain, in
                this order.

        Returns:
            The class or function, or None if the name is unknown.
        """
        found = super().get(key)
        if '.' not in key and key not in self.module_dict:
            # MMEngine has no public list of the active default scopes.
            scopes = DefaultScope._instance_dict.values()
            run = [s.scope_name for s in scopes if s.scope_name != self.scope]
            if run and run[-1] != 'mmengine':
                found = super().get(f'{run[-1]}.{key}') or found
            found = found or super().get(f'mmpretrain.{key}')
        return found


def child_of(
    parent: Registry, location: str = 'mmmoca.engine.parts'
) -> Registry:
    """Create a registry of the scope ``mmmoca``.

    Args:
        parent (Registry): The registry of MMEngine that becomes its parent.
        location (str): The module whose import registers its classes.

    Returns:
        Registry: The new registry, a child of ``parent``.
    """
    # MMEngine warns if a registry has no child in a scope, and if a child has
    # no locations. Importing `mmmoca.checkpoints` registers the schemes of
    # checkpoint addresses, such as mmmoca-file://.
    return _Registry(
        parent.name,
        parent=parent,
        scope='mmmoca',
        locations=['mmmoca.checkpoints', location],
    )


MODELS = child_of(mmengine.MODELS, 'mmmoca.models')
MODEL_WRAPPERS = child_of(mmengine.MODEL_WRAPPERS, 'mmmoca.models')
WEIGHT_INITIALIZERS = child_of(mmengine.WEIGHT_INITIALIZERS, 'mmmoca.models')
TASK_UTILS = child_of(mmengine.TASK_UTILS, 'mmmoca.models')

RUNNERS = child_of(mmengine.RUNNERS)
RUNNER_CONSTRUCTORS = child_of(mmengine.RUNNER_CONSTRUCTORS)
LOOPS = child_of(mmengine.LOOPS)
HOOKS = child_of(mmengine.HOOKS)
LOG_PROCESSORS = child_of(mmengine.LOG_PROCESSORS)
STRATEGIES = child_of(mmengine.STRATEGIES)
OPTIMIZERS = child_of(mmengine.OPTIMIZERS)
OPTIM_WRAPPERS = child_of(mmengine.OPTIM_WRAPPERS)
OPTIM_WRAPPER_CONSTRUCTORS = child_of(mmengine.OPTIM_WRAPPER_CONSTRUCTORS)
PARAM_SCHEDULERS = child_of(mmengine.PARAM_SCHEDULERS)
INFERENCERS = child_of(mmengine.INFERENCERS)

DATASETS = child_of(mmengine.DATASETS, 'mmmoca.datasets')
DATA_SAMPLERS = child_of(mmengine.DATA_SAMPLERS, 'mmmoca.datasets')
TRANSFORMS = child_of(mmengine.TRANSFORMS, 'mmmoca.datasets')
FUNCTIONS = child_of(mmengine.FUNCTIONS, 'mmmoca.datasets')

METRICS = child_of(mmengine.METRICS, 'mmmoca.evaluation')
EVALUATOR = child_of(mmengine.EVALUATOR, 'mmmoca.evaluation')

VISUALIZERS = child_of(mmengine.VISUALIZERS, 'mmmoca.evaluation')
VISBACKENDS = child_of(mmengine.VISBACKENDS, 'mmmoca.evaluation')
