# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from typing import TYPE_CHECKING

from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmmoca.progress import ProgressBar
from mmmoca.registry import HOOKS

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ['ProgressHook']


@HOOKS.register_module()
class ProgressHook(Hook):
    """A progress bar, or lines where the output is no terminal.

    For runs whose log is not shown beside it, see :class:`QuietRunner`.

    Args:
        console (Console, optional): Where to show it; by default the
            terminal or the notebook.
        interval (int, optional): Steps from one line to the next; by
            default one every half minute.
    """

    priority = 'LOWEST'

    def __init__(
        self, console: 'Console | None' = None, interval: int | None = None
    ) -> None:
        self.console = console
        self.interval = interval
        self.bar = None
        self.accuracy = ''

    def before_train(self, runner: Runner) -> None:
        """Start the clock."""
        if is_main_process():
            self.bar = ProgressBar('step', runner.max_iters, self.console)
            self.bar.__enter__()
            self.bar.update(runner.iter, line=False)

    def after_train_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: dict | None = None,
        outputs: dict | None = None,
    ) -> None:
        """Advance."""
        if self.bar is None:
            return
        done = runner.iter + 1
        line = done % self.interval == 0 if self.interval else None
        notes = []
        # It is taken off the device as often as the LoggerHook asks.
        losses = runner.message_hub.log_scalars.get('train/loss')
        if losses is not None:
            notes.append(f'loss {losses.current():.2f}')
        if not self.bar.lines and self.accuracy:
            notes.append(self.accuracy)
        self.bar.update(done, ', '.join(notes), line)

    def after_val_epoch(
        self, runner: Runner, metrics: dict[str, float] | None = None
    ) -> None:
        """Show the accuracy."""
        if self.bar is None or not metrics:
            return
        self.accuracy = f'k-NN {next(iter(metrics.values())):.1f} %'
        if self.bar.lines:
            self.bar.update(runner.iter, self.accuracy, line=True)

    def after_train(self, runner: Runner) -> None:
        """Leave the bar as it is; the run may have failed."""
        if self.bar is not None:
            self.bar.__exit__()
            self.bar = None
