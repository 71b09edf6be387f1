# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What a comparison adds to the training of each method."""

import time

from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from mmpretrain.models.utils import CosineEMA, MultiheadAttention

from mmmoca.models.transformer import attention


@HOOKS.register_module()
class RivalHook(Hook):
    """Gives a rival MOCA's attention and an end of its teacher's momentum.

    In bfloat16 on a CPU a step then takes three quarters of the time.

    Args:
        end (float): Weight of the student in the teacher's last update. It
            starts as the model's ``base_momentum`` and follows half a cosine.
            Defaults to 0, which is mmpretrain's own.
    """

    def __init__(self, end: float = 0.0) -> None:
        self.end = end

    def before_train(self, runner: Runner) -> None:
        """Set both."""
        for module in runner.model.modules():
            if isinstance(module, CosineEMA):
                module.end_momentum = self.end
            elif isinstance(module, MultiheadAttention):
                module.scaled_dot_product_attention = attention


@HOOKS.register_module()
class CPUSecondsHook(Hook):
    """Counts CPU seconds of training in the message hub of checkpoints."""

    # Before the hook that writes checkpoints.
    priority = 'LOW'

    def before_train(self, runner: Runner) -> None:
        """Go on from the seconds of the checkpoint."""
        before = runner.message_hub.get_info('cpu_seconds', 0.0)
        self._start = time.process_time() - before

    def after_train_iter(self, runner: Runner, *_, **__) -> None:
        """Count up to this iteration."""
        seconds = time.process_time() - self._start
        runner.message_hub.update_info('cpu_seconds', seconds)
