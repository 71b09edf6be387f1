# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A training from its config to its end, for the shell and for Python."""

import os
from pathlib import Path

from mmengine.config import Config
from mmengine.runner import Runner

from .hooks.checkpoint_hook import AtomicCheckpointHook
from .hooks.preemption_hook import PreemptionHook
from .hooks.progress_hook import ProgressHook
from .launch import build_runner, check_files
from .recipe import complete_recipe

__all__ = ['prepare_training', 'train']


def prepare_training(
    cfg: Config,
    init: str | os.PathLike | None = None,
    resume: str | os.PathLike | None = None,
    amp: bool = False,
    validate: bool = True,
    auto_scale_lr: bool = False,
) -> dict[str, float]:
    """Write into a config how its run starts, and what it leaves open.

    Args:
        cfg (Config): Of :func:`~mmmoca.engine.launch.load_config`, changed
            in place.
        init (str | os.PathLike, optional): The weights to start from, of any
            layout known.
        resume (str | os.PathLike, optional): The checkpoint to go on from;
            'auto' for the latest one in the work dir, if there is one.
        amp (bool): Train in mixed precision, see
            :class:`~mmmoca.engine.optimizers.MixedPrecisionOptimWrapper`.
        validate (bool): Whether to keep the validation. Defaults to True.
        auto_scale_lr (bool): Scale the learning rate by the total batch
            size.

    Returns:
        dict[str, float]: What :func:`complete_recipe` wrote.

    Raises:
        FileNotFoundError: If the checkpoint or a folder of images is missing.
        ValueError: If an argument does not fit the config.
    """
    if not validate:
        cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    _choose_weights(cfg, init, resume)
    if auto_scale_lr:
        if cfg.get('auto_scale_lr') is None:
            raise ValueError(
                '--auto-scale-lr needs auto_scale_lr=dict(base_batch_size=...)'
                ' in the config'
            )
        cfg.auto_scale_lr.enable = True
    if amp:
        ours = 'mmmoca.MixedPrecisionOptimWrapper'
        kind = cfg.optim_wrapper.get('type', 'OptimWrapper')
        if kind not in ('OptimWrapper', 'AmpOptimWrapper', ours):
            raise ValueError(f'--amp cannot replace the optim_wrapper {kind}')
        if kind == 'OptimWrapper':
            cfg.optim_wrapper.type = ours
    check_files(cfg, 'train', 'val')
    return complete_recipe(cfg)


def train(
    cfg: Config, written: dict[str, float], progress: bool = False
) -> Runner:
    """Run a training.

    Args:
        cfg (Config): The prepared config.
        written (dict[str, float]): What :func:`prepare_training` returned,
            for the log.
        progress (bool): Show a progress bar in the place of the log, which
            is in its file all the same.

    Returns:
        Runner: After the training.

    Raises:
        Exception: Whatever building the run or running it raises.
    """
    runner = build_runner(cfg, progress)
    for key, value in written.items():
        runner.logger.info(f'{key}={value:g} follows from images and steps')
    try:
        runner.train()
    finally:
        # MMEngine calls no hook after an exception.
        for hook in runner.hooks:
            if isinstance(hook, ProgressHook | PreemptionHook):
                hook.after_train(runner)
            elif isinstance(hook, AtomicCheckpointHook):
                hook.after_run(runner)
    return runner


def _choose_weights(
    cfg: Config,
    init: str | os.PathLike | None,
    resume: str | os.PathLike | None,
) -> None:
    """Write into the config what the run starts from, or goes on with."""
    start = cfg.get('load_from')
    if init is not None:
        if start is not None or resume not in (None, 'auto'):
            other = start or f'--resume {resume}'
            raise ValueError(f'leave out --init {init} or {other}')
        start = cfg.load_from = f'mmmoca-start://{os.fspath(init)}'
    if resume == 'auto' and start is not None:
        # A job that is put back into the queue before it has saved anything
        # still has to start from it.
        folder = Path(cfg.work_dir)
        if not any((*folder.glob('last_checkpoint'), *folder.glob('*.pth'))):
            return
    if resume is not None:
        cfg.resume = True
        cfg.load_from = None if resume == 'auto' else os.fspath(resume)
