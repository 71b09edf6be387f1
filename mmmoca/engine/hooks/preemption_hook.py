# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType

import torch
from mmengine.dist import get_world_size, is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import distributed
from torch.utils.data import get_worker_info

from mmmoca.engine.mmengine import loaders_by_role
from mmmoca.engine.processes import collective_timeout
from mmmoca.engine.steps import stepped
from mmmoca.registry import HOOKS

from .checkpoint_hook import AtomicCheckpointHook


class StoppedRun(SystemExit):
    """The end of a run that got a signal and has written a checkpoint.

    Args:
        number (int): The number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(os.EX_TEMPFAIL)
        self.number = number


@HOOKS.register_module()
class PreemptionHook(Hook):
    """Saves and ends a run that receives SIGTERM, SIGINT or SIGUSR1.

    If any process gets the signal, the run finishes its optimiser step and
    writes ``interrupted.pth``. Then every process exits with status 75
    (EX_TEMPFAIL), so that a scheduler can start the run again. With
    ``--resume`` the run continues as if nothing had happened. A validation
    that is running or due is finished first. If the step was the last one, the
    run ends as usual. A second signal of the same kind stops the run at once.

    Raises:
        StoppedRun: After the checkpoint is written. The exit status is 75.
    """

    # This hook stops the run before other hooks begin the next step.
    priority = 'HIGHEST'
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)

    def __init__(self) -> None:
        self._received = 0
        self._previous: dict[int, object] = {}
        self._group = None

    def before_train(self, runner: Runner) -> None:
        """Install the signal handlers."""
        if get_world_size() > 1:
            # With gloo, all processes learn of a signal without waiting for
            # their devices.
            self._group = distributed.new_group(
                backend='gloo', timeout=collective_timeout(runner.cfg)
            )
        if threading.current_thread() is threading.main_thread():
            self._previous = {
                number: signal.signal(number, self._receive)
                for number in self.signals
            }
            for loader in loaders_by_role(runner).values():
                loader.worker_init_fn = partial(
                    start_worker, loader.worker_init_fn
                )

    def after_run(self, runner: Runner) -> None:
        """Restore the signal handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def before_train_iter(self, runner: Runner, *_, **__) -> None:
        """Save and end the run if any process got a signal."""
        if not stepped(runner):
            return
        received = torch.tensor(self._received)
        if self._group is not None:
            distributed.all_reduce(
                received, distributed.ReduceOp.MAX, self._group
            )
        if not received:
            return
        self.after_run(runner)
        for hook in runner.hooks:
            if isinstance(hook, AtomicCheckpointHook):
                hook.save_interrupted(runner)
                runner.logger.warning(
                    f'the run stops after iteration {runner.iter} and has '
                    'written interrupted.pth: --resume (in Python, '
                    'resume=True) continues from there'
                )
        if self._group is not None:
            # A launcher kills all processes as soon as one has ended, so each
            # process waits here until the checkpoint is written.
            distributed.barrier(self._group)
        raise StoppedRun(int(received))

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received = number
        # Ctrl-C also reaches data loader workers, which must not print.
        if is_main_process() and get_worker_info() is None:
            # A signal handler must not call `print`.
            name = signal.Signals(number).name
            os.write(2, f'\n{name}: the run ends after this step\n'.encode())
        # A second signal has its usual effect.
        signal.signal(number, self._previous[number])


def start_worker(start: Callable | None, number: int) -> None:
    """Let a data loader's worker end when its run ends, and not before.

    Slurm and torchrun send SIGTERM to all processes. PyTorch's handler would
    end the workers, and the run would fail. If the run is killed, PyTorch's
    workers would wait forever for a process to fetch their batches.

    Args:
        start (Callable | None): ``worker_init_fn`` of the loader's config.
        number (int): Number of the worker.
    """
    if hasattr(signal, 'sigtimedwait'):  # not on macOS
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        run = os.getppid()
        threading.Thread(target=_end_by, args=(run,), daemon=True).start()
    if start is not None:
        start(number)


def _end_by(run: int) -> None:
    """End this worker when its run sends SIGTERM or has ended."""
    while os.getppid() == run:
        received = signal.sigtimedwait({signal.SIGTERM}, 1)
        if received is not None and received.si_pid == run:
            break
    os._exit(0)
