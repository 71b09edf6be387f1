# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmengine.hooks import PrepareTTAHook
from mmengine.runner import Runner

from mmmoca.engine.steps import unwrap_model
from mmmoca.registry import HOOKS


@HOOKS.register_module()
class UnwrappedTTAHook(PrepareTTAHook):
    """MMEngine's hook for a model of test-time augmentation, on any ranks.

    mmsegmentation's takes attributes of the segmentor, which DDP hides. A test
    needs no DDP.
    """

    def before_test(self, runner: Runner) -> None:
        """Put the model into that of ``tta_cfg``."""
        runner.model = unwrap_model(runner.model)
        super().before_test(runner)
