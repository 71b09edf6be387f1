# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A training from its config to its end, for ``tools`` and for Python."""

import logging
import os
from contextlib import ExitStack
from pathlib import Path

from mmengine.config import Config
from mmengine.registry import RUNNERS
from mmengine.runner import Runner

from mmmoca.checkpoints.run_folder import FolderLock

from .file_check import check_files
from .hooks.checkpoint_hook import AtomicCheckpointHook, left_checkpoints
from .hooks.preemption_hook import PreemptionHook
from .hooks.progress_hook import ProgressHook
from .processes import join_processes, on_main_process
from .recipe import complete_recipe, global_batch_size, scale_lr
from .runners.console_runner import ConsoleRunner


def prepare_training(
    cfg: Config,
    init: str | os.PathLike | None = None,
    resume: str | os.PathLike | None = None,
    amp: bool = False,
    validate: bool = True,
    auto_scale_lr: bool = False,
) -> dict[str, float]:
    """Write into a config how its run starts, and complete its numbers.

    Args:
        cfg (Config): Of :func:`~mmmoca.engine.config.load_config`, changed
            in place.
        init (str | os.PathLike, optional): The weights to start from, of any
            layout known.
        resume (str | os.PathLike, optional): The checkpoint to go on from.
            'auto' takes the latest one in the work dir, if there is one.
        amp (bool): Train in mixed precision if the config does not. See
            :class:`~mmmoca.engine.optimizers.MixedPrecisionOptimWrapper`.
        validate (bool): Whether to keep the validation. Defaults to True.
        auto_scale_lr (bool): Scale the learning rate. See
            :func:`~mmmoca.engine.recipe.scale_lr`.

    Returns:
        dict[str, float]: The numbers that follow from images and batch, by
        their keys.

    Raises:
        FileNotFoundError: If the checkpoint or a folder of images is missing.
        ValueError: If there are two checkpoints to start from, or two
            precisions. See also :func:`complete_recipe`.
    """
    if not validate:
        cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    start = cfg.get('load_from')
    if init is not None:
        if start is not None or resume not in (None, 'auto'):
            raise ValueError(
                f'one start is enough: leave out {init}, or {start or resume}'
            )
        start = cfg.load_from = f'mmmoca-start://{os.fspath(init)}'
        cfg.resume = False
    folder = Path(cfg.get('work_dir', ''))
    saved = left_checkpoints(folder)
    # A job that was requeued before its first checkpoint starts again from
    # load_from.
    if resume is not None and (resume != 'auto' or start is None or saved):
        cfg.resume = True
        cfg.load_from = None if resume == 'auto' else os.fspath(resume)
    if auto_scale_lr:
        cfg.merge_from_dict({'auto_scale_lr.enable': True})
    if amp and cfg.optim_wrapper.get('dtype') == 'float32':
        raise ValueError(
            'dtype=float32 is no mixed precision: leave out one of both'
        )
    # All other wrappers use mixed precision anyway.
    if amp and cfg.optim_wrapper.get('type', 'OptimWrapper') == 'OptimWrapper':
        cfg.optim_wrapper.type = 'mmmoca.MixedPrecisionOptimWrapper'
    check_files(cfg, 'train', 'val')
    return complete_recipe(cfg) | scale_lr(cfg)


def build_runner(cfg: Config, progress: bool = False) -> Runner:
    """Build the runner, on processes without a GPU too.

    Args:
        cfg (Config): The config.
        progress (bool): Show a progress bar and warnings instead of the log,
            which goes to its file anyway. Defaults to False.

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
    if progress:
        for handler in runner.logger.handlers:
            if not isinstance(handler, logging.FileHandler):
                handler.setLevel(logging.WARNING)
        runner.register_hook(ProgressHook())
    return runner


def train(
    cfg: Config, written: dict[str, float], progress: bool = False
) -> Runner:
    """Run a training. Its process is the only one that writes to its folder.

    Args:
        cfg (Config): The prepared config.
        written (dict[str, float]): What :func:`prepare_training` returned,
            for the log.
        progress (bool): Show a progress bar instead of the log, which goes
            to its file anyway.

    Returns:
        Runner: The runner after the training.

    Raises:
        Exception: Any error of building the run or of running it.
    """
    join_processes(cfg)
    with ExitStack() as stack:
        # First, since a runner writes to its folder when it is built, and
        # the log of another one that starts in this second has its name.
        on_main_process(_lock, cfg.work_dir, stack)
        return _train(cfg, written, progress)


def _lock(folder: str, stack: ExitStack) -> None:
    stack.callback(FolderLock(folder).release)


def _train(cfg: Config, written: dict[str, float], progress: bool) -> Runner:
    runner = build_runner(cfg, progress)
    if written:
        numbers = ', '.join(f'{k}={v:g}' for k, v in written.items())
        runner.logger.info(f'from images and steps: {numbers}')
    batch = global_batch_size(cfg)
    base = (cfg.get('auto_scale_lr') or {}).get('base_batch_size', batch)
    if batch != base:
        runner.logger.warning(
            f'the learning rate was chosen for {base} images a step, not '
            f'{batch}: --auto-scale-lr (auto_scale_lr.enable=True) scales it'
        )
    try:
        runner.train()
    finally:
        # MMEngine does not call hooks after an exception.
        for hook in runner.hooks:
            if isinstance(
                hook, AtomicCheckpointHook | PreemptionHook | ProgressHook
            ):
                hook.after_run(runner)
    return runner
