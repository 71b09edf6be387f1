# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmmoca.engine.config_check import check_config
from mmmoca.registry import HOOKS

__all__ = ['ConfigCheckHook']


@HOOKS.register_module()
class ConfigCheckHook(Hook):
    """Refuses a config that makes no sense, before any weights are loaded.

    The tools of this package do so before they build anything. This is for
    ``mim train`` and :meth:`Runner.from_cfg`, which build the model, the data
    sets and the optimiser before the first hook is called.

    Raises:
        ValueError: See :func:`~mmmoca.engine.config_check.check_config`.
    """

    # Before the hooks that look at data and weights.
    priority = 'HIGHEST'

    def before_run(self, runner: Runner) -> None:
        """Check the config that the runner was built from, if any."""
        check_config(runner.cfg)
