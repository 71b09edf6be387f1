# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import os
import signal
import threading
from collections.abc import Sequence
from types import FrameType

import torch
from mmengine.dist import get_world_size, is_main_process
from mmengine.hooks import EMAHook, Hook
from mmengine.runner import BaseLoop, EpochBasedTrainLoop, Runner
from torch import distributed
from torch.utils.data import DataLoader

from mmmoca.datasets import SeededSampler
from mmmoca.engine.processes import collective_timeout
from mmmoca.engine.steps import stepped
from mmmoca.registry import HOOKS

from .checkpoint_hook import AtomicCheckpointHook
from .reproducibility_hook import ReproducibilityHook

__all__ = ['PreemptionHook']


@HOOKS.register_module()
class PreemptionHook(Hook):
    """Saves a run that is asked to stop, and ends it.

    After SIGTERM, SIGINT or SIGUSR1 to any of its processes the run finishes
    its optimiser step, or its present batch of a validation, and writes
    ``interrupted.pth``, from which ``--resume`` goes on as if nothing had
    happened. A validation that was interrupted is done again, from its
    start; an epoch whose order the :class:`ReproducibilityHook` does not know
    starts anew. Then every process exits with status 75 (EX_TEMPFAIL), so
    that a scheduler can start the run again. The same signal once more stops
    at once.

    Raises:
        SystemExit: With status 75.
    """

    # After all that belongs to the step.
    priority = 'LOWEST'
    exit_status = os.EX_TEMPFAIL
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)

    def __init__(self) -> None:
        self._received = 0
        self._previous: dict[int, object] = {}
        self._group = None
        self._validates = False
        self._common_batches = 0

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Go back to the start of an epoch, or of a validation."""
        if not runner._resume:
            return
        meta = checkpoint['meta']
        self._validates = meta.get('in_validation', False)
        loop = runner._train_loop
        if not isinstance(loop, EpochBasedTrainLoop):
            return
        skips = isinstance(loop.dataloader.sampler, SeededSampler) and any(
            isinstance(hook, ReproducibilityHook) for hook in runner.hooks
        )
        start = meta['epoch'] * len(loop.dataloader)
        if not skips and meta['iter'] != start:
            runner.logger.warning(
                f'epoch {meta["epoch"] + 1} starts anew, at iteration {start} '
                f'in the place of {meta["iter"]}: its sampler cannot skip '
                'what has been seen'
            )
            meta['iter'] = start

    def before_train(self, runner: Runner) -> None:
        """Listen to the signals; do the validation that one interrupted."""
        if get_world_size() > 1:
            # The host tells the others without a look at the device.
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

    def after_train(self, runner: Runner) -> None:
        """Give the signals back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def after_train_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: dict | None = None,
        outputs: dict | None = None,
    ) -> None:
        """Save and end the run if any process was asked to."""
        if stepped(runner):
            self._stop_if_asked(runner, runner.iter + 1)

    def after_bank_iter(
        self, runner: Runner, batch_idx: int, loader: DataLoader
    ) -> None:
        """Likewise, between batches of the images that a k-NN compares to.

        Args:
            runner (Runner): The runner of the training.
            batch_idx (int): Number of the batch, from 0.
            loader (DataLoader): What it is of.
        """
        if not isinstance(runner._train_loop, BaseLoop):
            return  # a test or a validation alone
        # All processes have to take part, and some may have a batch less.
        if batch_idx == 0:
            self._common_batches = self._agree(
                len(loader), distributed.ReduceOp.MIN
            )
        # Within a step of several micro-batches the next one is waited for.
        if batch_idx < self._common_batches and stepped(runner):
            self._stop_if_asked(runner, runner.iter, in_validation=True)

    def after_val_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: dict | None = None,
        outputs: Sequence | None = None,
    ) -> None:
        """Likewise, between batches of a validation while training."""
        self.after_bank_iter(runner, batch_idx, runner.val_loop.dataloader)

    def _agree(self, number: int, how: distributed.ReduceOp) -> int:
        value = torch.tensor(number)
        if self._group is not None:
            distributed.all_reduce(value, how, group=self._group)
        return int(value)

    def _stop_if_asked(
        self, runner: Runner, iteration: int, in_validation: bool = False
    ) -> None:
        """Save the run after so many iterations, and end it."""
        received = self._agree(self._received, distributed.ReduceOp.MAX)
        if not received:
            return
        self.after_train(runner)
        if in_validation:
            for hook in runner.hooks:
                if isinstance(hook, EMAHook):
                    hook.after_val_epoch(runner)  # gives the weights back
        name = signal.Signals(received).name
        for hook in runner.hooks:
            if isinstance(hook, AtomicCheckpointHook):
                path = hook.save_interrupted(runner, iteration, in_validation)
                runner.logger.warning(
                    f'{name}: the run stops after iteration {iteration}; '
                    f'{path} is written, go on from it by --resume'
                )
        if self._group is not None:
            # A launcher kills the rest as soon as one has ended.
            distributed.barrier(group=self._group)
        raise SystemExit(self.exit_status)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received = number
        if is_main_process():
            # `print` may not be called while another one is at work.
            os.write(
                2,
                f'\n{signal.Signals(number).name}: the run saves itself '
                'after this step, or batch of a validation, and ends; once '
                'more ends it at once, with nothing saved\n'.encode(),
            )
        # The next one ends the process as it would have without this hook.
        signal.signal(number, self._previous[number])
