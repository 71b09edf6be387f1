# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmengine.hooks import PrepareTTAHook
from mmengine.runner import Runner

from mmmoca.engine.steps import unwrap_model
from mmmoca.registry import HOOKS


@HOOKS.register_module()
class UnwrappedTTAHook(PrepareTTAHook):
    """:class:`PrepareTTAHook` that also works with several processes.

    mmsegmentation's model for test-time augmentation reads attributes of the
    segmentor, which DDP hides. A test needs no DDP, so this hook removes it.
    """

    def before_test(self, runner: Runner) -> None:
        """Remove DDP, and wrap the model in the TTA model of ``tta_cfg``."""
        runner.model = unwrap_model(runner.model)
        super().before_test(runner)
