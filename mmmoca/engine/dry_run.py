# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Describe a run before it starts, from its config and three real steps."""

import copy
import tempfile
from datetime import timedelta
from statistics import median

import torch
from mmengine.config import Config
from mmengine.hooks import Hook

from mmmoca.config_parts import parts_of
from mmmoca.datasets.look import Look

from .hooks.look_hook import LookHook
from .recipe import (
    RunSize,
    complete_recipe,
    count_iterations,
    count_micro_batches,
    likely_slips,
    run_size,
    scale_lr,
    training_set,
)
from .steps import check_images_of_a_step, unwrap_model
from .training import build_runner

STEPS = 3
SHORT = 10_000  # steps of a run whose batches may be too large
BEST_BATCH = 16  # of short runs: docs/benchmarks/own_images.md


def wait_for_device() -> None:
    """Wait until a GPU, if there is one, has done its work."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


class _WaitHook(Hook):
    """Waits for the device before MMEngine's timer reads the clock."""

    priority = 'VERY_HIGH'

    def after_train_iter(self, *args, **kwargs) -> None:
        wait_for_device()


def dry_run(cfg: Config) -> tuple[dict[str, str], Look | None]:
    """Count the images of a config and take three steps. Nothing is kept.

    Args:
        cfg (Config): Of :func:`~mmmoca.engine.config.read_run`. Not changed.

    Returns:
        tuple[dict[str, str], Look | None]: What the run starts from, images,
        steps, peaks of the learning rates, the time of the first step, of
        another one and of the run, the memory of a GPU, how often the
        codebook is renewed, and the numbers that follow from images and
        steps; and what the data are, unless ``look`` is None.

    Raises:
        Exception: Any error of building the run or of its first steps.
    """
    short, dataset = copy.deepcopy(cfg), training_set(cfg)
    numbers = complete_recipe(short, len(dataset)) | scale_lr(short)
    run = run_size(short, len(dataset))
    _shorten(short, run)
    with tempfile.TemporaryDirectory() as short.work_dir:
        runner = build_runner(short, dataset)
        runner.register_hook(_WaitHook())
        runner.train()
    micro_batches = count_micro_batches(cfg)
    times = runner.message_hub.get_scalar('train/time').data[0]
    first = sum(times[:micro_batches])
    seconds = micro_batches * median(times[micro_batches:])
    whole = first + (run.steps - 1) * seconds
    filled = [
        line for hook in runner.hooks for line in getattr(hook, 'filled', ())
    ]
    slips = likely_slips(short)
    report = {
        **({'starts from': '; '.join(filled)} if filled else {}),
        'images': f'{run.images}',
        'images a step': f'{run.batch}',
        'steps': f'{run.steps}',
        **_rates(runner.optim_wrapper.optimizer.param_groups),
        **({'note': '; '.join(slips)} if slips else {}),
        'the first step': f'{first:.3g} s (compiling, loading)',
        'a step': f'{seconds:.3g} s',
        'the run': f'{timedelta(seconds=round(whole))} without validation',
    }
    small = run.steps < SHORT and run.batch > BEST_BATCH
    if cfg.get('settings') == 'own_images' and small:
        report['a smaller batch'] = (
            f'{BEST_BATCH} images a step taught a small ViT most in the same '
            'minutes (docs/benchmarks/own_images.md)'
        )
    if torch.cuda.is_available():
        memory = torch.cuda.max_memory_reserved() / 2**30
        report['memory of a GPU'] = f'{memory:.1f} GiB'
    codebook = getattr(unwrap_model(runner.model), 'codebook', None)
    if codebook is not None:
        words = len(codebook.words)
        turns = run.steps * codebook.num_new_words / words
        report['codebook'] = f'{words} words, {turns:.3g} times renewed'
        if turns < 1:
            report['codebook'] += ': some stay noise, lower num_words'
    report |= {key: f'{value:g}' for key, value in numbers.items()}
    hooks = [hook for hook in runner.hooks if isinstance(hook, LookHook)]
    return report, hooks[0].look if hooks else None


def _shorten(cfg: Config, run: RunSize) -> None:
    """Let a run take a few steps, and refuse what the whole run would."""
    micro_batches = count_micro_batches(cfg)
    epochs = cfg.train_cfg.get('max_epochs')
    codebook = cfg.model.get('codebook') or {}
    loader = cfg.train_dataloader
    whole = loader.get('drop_last') or loader.get('num_batch_per_epoch')
    check_images_of_a_step(
        run.images,
        run.batch // micro_batches,
        count_iterations(cfg, run.images),
        micro_batches,
        bool(epochs and not whole),
        codebook.get('num_new_words', 1),
    )
    for part in parts_of(cfg.get('param_scheduler')):
        length = epochs if part.get('by_epoch', True) else None
        part.setdefault('end', length or run.steps * micro_batches)
    iterations = (STEPS + 1) * micro_batches
    # The validation is built, for what it refuses, and never begins.
    cfg.train_cfg = dict(
        type='IterBasedTrainLoop',
        max_iters=iterations,
        val_begin=iterations + 1,
    )
    for part in ('cfg', 'dataloader', 'evaluator'):
        cfg[f'test_{part}'] = None
    hooks = cfg.get('default_hooks') or {}
    cfg.default_hooks = dict(hooks, checkpoint=None)
    cfg.visualizer, cfg.resume, cfg.log_level = None, False, 'ERROR'


def _rates(groups: list[dict]) -> dict[str, str]:
    """Highest and lowest learning rate of prototypes and of other groups."""
    rates: dict[str, set[float]] = {}
    for group in groups:
        own = 'lr' in group.get('constant', ())
        name = 'learning rate of prototypes' if own else 'learning rate'
        rates.setdefault(name, set()).add(group.get('initial_lr', group['lr']))
    return {
        name: ' to '.join(f'{r:g}' for r in sorted({min(found), max(found)}))
        for name, found in rates.items()
    }
