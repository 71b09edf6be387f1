# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from contextlib import ExitStack

from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmmoca.progress import progress_bar
from mmmoca.registry import HOOKS


@HOOKS.register_module()
class ProgressHook(Hook):
    """Shows a progress bar of training, with the loss and a metric."""

    priority = 'LOWEST'

    def __init__(self) -> None:
        self._open = ExitStack()
        self._metric = ''

    def before_train(self, runner: Runner) -> None:
        """Open the bar."""
        bar = progress_bar('step', runner.max_iters, is_main_process())
        self._update = self._open.enter_context(bar)
        self._update(runner.iter)

    def after_train_iter(self, runner: Runner, *_, **__) -> None:
        """Advance the bar."""
        self._show(runner, runner.iter + 1)

    def _show(self, runner: Runner, done: int) -> None:
        # StepLogHook does not copy the loss from the device at each step.
        losses = runner.message_hub.log_scalars.get('train/loss')
        loss = f'loss {losses.current():.2f}' if losses else ''
        self._update(done, loss + self._metric)

    def after_val_epoch(
        self, runner: Runner, metrics: dict[str, float] | None = None
    ) -> None:
        """Show the first metric."""
        if metrics:
            name, value = next(iter(metrics.items()))
            protocol = name.partition('/')[0].replace('knn', 'k-NN')
            self._metric = f', {protocol} {value:.1f} %'
            self._show(runner, runner.iter)

    def after_run(self, runner: Runner) -> None:
        """Close the bar, even after a failed run."""
        self._open.close()
