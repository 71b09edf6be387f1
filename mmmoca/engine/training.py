# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Trains a model from a config, for ``tools`` and for Python."""

import logging
from contextlib import ExitStack

from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.dist import is_main_process
from mmengine.registry import RUNNERS
from mmengine.runner import Runner

from mmmoca.checkpoints.run_folder import FolderLock, refuse_used

from .hooks.checkpoint_hook import AtomicCheckpointHook
from .hooks.preemption_hook import PreemptionHook
from .hooks.progress_hook import ProgressHook
from .mmengine import hand_over
from .processes import join_processes, on_main_process
from .recipe import complete_recipe, scale_lr, training_set
from .runners.baselines_hook import BaselinesHook
from .runners.console_runner import ConsoleRunner
from .slips import likely_slips


def run(cfg: Config, progress: bool = False) -> Runner:
    """Train a model. Meanwhile no other run may write to its work dir.

    Args:
        cfg (Config): The config that :func:`~mmmoca.engine.config.read_run`
            returned. Numbers that depend on the number of images, the batch
            size or the length of the run are written into it.
        progress (bool): Whether to show a progress bar and warnings instead of
            the log. The log file is written anyway. Defaults to False.

    Returns:
        Runner: The runner after training.

    Raises:
        Exception: Any error from building the run or from training.
    """
    join_processes(cfg)
    dataset = training_set(cfg)
    numbers = complete_recipe(cfg, len(dataset)) | scale_lr(cfg)
    with ExitStack() as stack:
        # Lock before building the runner, which writes its log to the work
        # dir: two runs that start in the same second would share one log.
        on_main_process(_lock, cfg.work_dir, bool(cfg.get('resume')), stack)
        runner = build_runner(cfg, dataset)
        if progress:
            _show_progress(runner)
        _log_recipe(runner, cfg, numbers)
        # MMEngine does not call `after_run` after an exception.
        for hook in runner.hooks:
            if isinstance(
                hook, AtomicCheckpointHook | PreemptionHook | ProgressHook
            ):
                stack.callback(hook.after_run, runner)
        runner.train()
    for hook in runner.hooks if progress and is_main_process() else ():
        if isinstance(hook, BaselinesHook):
            print(*hook.gains, sep='\n')
    return runner


def build_runner(cfg: Config, dataset: BaseDataset | None = None) -> Runner:
    """Build the runner. Several processes may also run on CPUs.

    Args:
        cfg (Config): The config.
        dataset (BaseDataset, optional): Its training set, if already built.

    Returns:
        Runner: A :class:`ConsoleRunner`, or the config's ``runner_type``.

    Raises:
        RuntimeError: See :func:`.processes.join_processes`.
    """
    join_processes(cfg)
    if 'runner_type' in cfg:
        runner = RUNNERS.build(cfg)
    else:
        runner = ConsoleRunner.from_cfg(cfg)
    if dataset is not None:
        hand_over(runner, dataset)
    return runner


def _lock(folder: str, resumes: bool, stack: ExitStack) -> None:
    """Lock a work dir; refuse to overwrite the checkpoints in it.

    The refusal is for configs without :class:`AtomicCheckpointHook`, which has
    its own.
    """
    stack.callback(FolderLock(folder).release)
    if not resumes:
        refuse_used(folder)


def _show_progress(runner: Runner) -> None:
    for handler in runner.logger.handlers:
        if not isinstance(handler, logging.FileHandler):
            handler.setLevel(logging.WARNING)
    runner.register_hook(ProgressHook())


def _log_recipe(
    runner: Runner, cfg: Config, numbers: dict[str, float]
) -> None:
    """Log the numbers that were written; warn of likely slips."""
    if numbers:
        text = ', '.join(f'{key}={n:g}' for key, n in numbers.items())
        runner.logger.info(f'from images and steps: {text}')
    for warning in likely_slips(cfg):
        runner.logger.warning(warning)
