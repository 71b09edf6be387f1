# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmmoca.progress import ProgressBar
from mmmoca.registry import HOOKS

__all__ = ['ProgressHook']


@HOOKS.register_module()
class ProgressHook(Hook):
    """A progress bar for runs whose log is not shown, see `QuietRunner`."""

    priority = 'LOWEST'
    bar = None
    accuracy = ''

    def before_train(self, runner: Runner) -> None:
        """Start the clock."""
        if is_main_process():
            self.bar = ProgressBar('step', runner.max_iters)
            self.bar.__enter__()
            self.bar.update(runner.iter)

    def after_train_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: dict | None = None,
        outputs: dict | None = None,
    ) -> None:
        """Advance."""
        if self.bar is not None:
            # It is taken off the device as often as the LoggerHook asks.
            losses = runner.message_hub.log_scalars.get('train/loss')
            loss = f'loss {losses.current():.2f}' if losses else ''
            self.bar.update(runner.iter + 1, loss + self.accuracy)

    def after_val_epoch(
        self, runner: Runner, metrics: dict[str, float] | None = None
    ) -> None:
        """Show the accuracy from now on."""
        if metrics:
            self.accuracy = f', k-NN {next(iter(metrics.values())):.1f} %'

    def after_train(self, runner: Runner) -> None:
        """Leave the bar as it is; the run may have failed."""
        if self.bar is not None:
            self.bar.__exit__(None, None, None)
            self.bar = None
