# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from contextlib import ExitStack

from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmmoca.progress import progress_bar
from mmmoca.registry import HOOKS

__all__ = ['ProgressHook']


@HOOKS.register_module()
class ProgressHook(Hook):
    """A progress bar for runs whose log is not shown, see `QuietRunner`."""

    priority = 'LOWEST'

    def __init__(self) -> None:
        self._open = ExitStack()
        self._accuracy = ''

    def before_train(self, runner: Runner) -> None:
        """Start the clock."""
        bar = progress_bar('step', runner.max_iters, is_main_process())
        self._update = self._open.enter_context(bar)
        self._update(runner.iter)

    def after_train_iter(self, runner: Runner, *_, **__) -> None:
        """Advance."""
        # It is taken off the device as often as the LoggerHook asks.
        losses = runner.message_hub.log_scalars.get('train/loss')
        loss = f'loss {losses.current():.2f}' if losses else ''
        self._update(runner.iter + 1, loss + self._accuracy)

    def after_val_epoch(
        self, runner: Runner, metrics: dict[str, float] | None = None
    ) -> None:
        """Show the accuracy from now on."""
        if metrics:
            self._accuracy = f', k-NN {next(iter(metrics.values())):.1f} %'

    def after_train(self, runner: Runner) -> None:
        """Leave the bar as it is; the run may have failed."""
        self._open.close()
