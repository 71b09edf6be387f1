# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import os
import signal
import threading
from types import FrameType

import torch
from mmengine.dist import get_world_size, is_main_process
from mmengine.hooks import EMAHook, Hook
from mmengine.runner import IterBasedTrainLoop, Runner
from torch import distributed
from torch.utils.data import DataLoader

from mmmoca.engine.processes import collective_timeout
from mmmoca.engine.steps import is_training, stepped
from mmmoca.registry import HOOKS

from .checkpoint_hook import AtomicCheckpointHook


@HOOKS.register_module()
class PreemptionHook(Hook):
    """Saves and ends a run that receives SIGTERM, SIGINT or SIGUSR1.

    If any process gets the signal, the run finishes its optimiser step, or
    its batch of a validation, and writes ``interrupted.pth``. Then every
    process exits with status 75 (EX_TEMPFAIL), so that a scheduler can start
    the run again. ``--resume`` goes on as if nothing had happened; it repeats
    an interrupted validation from its start. A second signal stops the run at
    once.

    Raises:
        SystemExit: With status 75.
    """

    # After all other hooks of the step.
    priority = 'LOWEST'
    exit_status = os.EX_TEMPFAIL
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)

    def __init__(self) -> None:
        self._received = 0
        self._previous: dict[int, object] = {}
        self._group = None
        self._validates = False

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Note whether the resumed run stopped in a validation."""
        meta = checkpoint.get('meta', {})
        self._validates = runner._resume and meta.get('in_validation', False)

    def before_train(self, runner: Runner) -> None:
        """Handle the signals; repeat the validation that one interrupted."""
        if get_world_size() > 1:
            # Hosts agree over gloo, without waiting for the devices.
            self._group = distributed.new_group(
                backend='gloo', timeout=collective_timeout(runner.cfg)
            )
        if threading.current_thread() is threading.main_thread():
            self._previous = {
                number: signal.signal(number, self._receive)
                for number in self.signals
            }
        if self._validates and runner.val_loop is not None:
            runner.val_loop.run()

    def after_run(self, runner: Runner) -> None:
        """Restore the signal handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def after_train_iter(self, runner: Runner, *_, **__) -> None:
        """Save and end the run if any process got a signal.

        If a validation follows, the run stops in its first batch. The resumed
        run then repeats it.
        """
        if not _validation_is_next(runner):
            self._stop_if_asked(runner, runner.iter + 1)

    def after_val_iter(self, runner: Runner, batch_idx: int, *_, **__) -> None:
        """Do the same between batches of a validation while training."""
        self.after_bank_iter(runner, batch_idx, runner.val_loop.dataloader)

    def after_bank_iter(
        self, runner: Runner, batch_idx: int, loader: DataLoader
    ) -> None:
        """Do the same between batches of a k-NN's bank.

        Args:
            runner (Runner): The runner of the training.
            batch_idx (int): Number of the batch, from 0.
            loader (DataLoader): The loader of the batch.
        """
        # The check is collective, and some processes have one batch less.
        images = len(loader.dataset) // get_world_size()
        common_batches = -(-images // loader.batch_sampler.batch_size)
        if is_training(runner) and batch_idx < common_batches:
            self._stop_if_asked(runner, runner.iter, in_validation=True)

    def _stop_if_asked(
        self, runner: Runner, iteration: int, in_validation: bool = False
    ) -> None:
        """Save and end the run if any process got a signal.

        Args:
            runner (Runner): The runner of the training.
            iteration (int): Iterations done.
            in_validation (bool): Whether a validation is running.
        """
        if not stepped(runner):
            return  # within a step of several micro-batches
        received = torch.tensor(self._received)
        if self._group is not None:
            distributed.all_reduce(
                received, distributed.ReduceOp.MAX, self._group
            )
        if not received:
            return
        self.after_run(runner)
        for hook in runner.hooks:
            if isinstance(hook, EMAHook) and in_validation:
                hook.after_val_epoch(runner)  # restores the weights
            if isinstance(hook, AtomicCheckpointHook):
                hook.save_interrupted(runner, iteration, in_validation)
                runner.logger.warning(
                    f'the run stops after iteration {iteration} and has '
                    'written interrupted.pth: go on from it by --resume'
                )
        if self._group is not None:
            # A launcher kills all processes as soon as one has ended.
            distributed.barrier(self._group)
        raise SystemExit(self.exit_status)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received = number
        if is_main_process():
            # A signal handler must not call `print`.
            name = signal.Signals(number).name
            os.write(2, f'\n{name}: the run ends after this step\n'.encode())
        # A second signal has its usual effect.
        signal.signal(number, self._previous[number])


def _validation_is_next(runner: Runner) -> bool:
    """Whether an iteration-based loop validates after this iteration.

    Other loops need no such care: a run that is resumed at the end of an
    epoch still validates.
    """
    loop, done = runner.train_loop, runner.iter + 1
    if runner.val_loop is None or not isinstance(loop, IterBasedTrainLoop):
        return False
    due = done % loop.val_interval == 0 or done == loop.max_iters
    return due and done >= loop.val_begin
