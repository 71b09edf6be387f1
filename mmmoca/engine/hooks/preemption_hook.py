# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import os
import signal
import threading
from types import FrameType

import torch
from mmengine.dist import get_world_size
from mmengine.hooks import Hook
from mmengine.runner import EpochBasedTrainLoop, Runner
from torch import distributed

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
    its optimiser step and writes ``interrupted.pth``, from which ``--resume``
    goes on as if nothing had happened; an epoch whose order the
    :class:`ReproducibilityHook` does not know starts anew. Then every process
    exits with status 75 (EX_TEMPFAIL), so that a scheduler can start the run
    again. The same signal once more stops at once.

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

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Go back to the start of an epoch that nothing can skip into."""
        loop = runner._train_loop
        if not runner._resume or not isinstance(loop, EpochBasedTrainLoop):
            return
        skips = isinstance(loop.dataloader.sampler, SeededSampler) and any(
            isinstance(hook, ReproducibilityHook) for hook in runner.hooks
        )
        meta = checkpoint['meta']
        start = meta['epoch'] * len(loop.dataloader)
        if not skips and meta['iter'] != start:
            runner.logger.warning(
                f'epoch {meta["epoch"] + 1} starts anew, at iteration {start} '
                f'in the place of {meta["iter"]}: its sampler cannot skip '
                'what has been seen'
            )
            meta['iter'] = start

    def before_train(self, runner: Runner) -> None:
        """Listen to the signals."""
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
        if not stepped(runner):
            return
        received = torch.tensor(self._received)
        if self._group is not None:
            distributed.all_reduce(
                received, distributed.ReduceOp.MAX, group=self._group
            )
        if not received:
            return
        self.after_train(runner)
        name = signal.Signals(int(received)).name
        for hook in runner.hooks:
            if isinstance(hook, AtomicCheckpointHook):
                path = hook.save_interrupted(runner)
                runner.logger.warning(
                    f'{name}: the run stops after iteration '
                    f'{runner.iter + 1}; {path} is written, go on from it '
                    'by --resume'
                )
        if self._group is not None:
            # A launcher kills the rest as soon as one has ended.
            distributed.barrier(group=self._group)
        raise SystemExit(self.exit_status)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received = number
        # The next one ends the process as it would have without this hook.
        signal.signal(number, self._previous[number])
