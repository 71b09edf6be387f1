# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Settings that follow from the images, the batch and the length of a run.

A config has 'auto' for them; docs/get_started/own_images.md states the rules.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS, init_default_scope

from mmmoca.checkpoints import local_file, read_checkpoint
from mmmoca.checkpoints.run_folder import newest_checkpoint
from mmmoca.config_parts import short_name

from .build_errors import explained
from .console import without_idle_warnings
from .options import place
from .processes import on_main_process, started_processes
from .steps import fewest_images

LR = 'optim_wrapper.optimizer.lr'
MOMENTUM = 'default_hooks.teacher_ema.momentum'
WORDS = 'model.codebook.num_words'
NEW_WORDS = 'model.codebook.num_new_words'
_CHECKPOINTS = 'epoch_{}.pth', 'iter_{}.pth'


# How a rate follows the images of a step. The authors' is linear.
SCALINGS: dict[str, Callable[[float], float]] = {
    'linear': float,
    'sqrt': math.sqrt,
}


class RunSize(NamedTuple):
    """The numbers of a run that the rules use.

    Attributes:
        images (int): N, of the training set.
        batch (int): B, images of an optimiser step.
        steps (int): S, optimiser steps.
        missing (int): Images that the smallest step lacks, see
            :func:`~mmmoca.engine.steps.fewest_images`.
    """

    images: int
    batch: int
    steps: int
    missing: int = 0


def recipe_numbers(run: RunSize, words: int | None = None) -> dict[str, float]:
    """Apply the rules to a run.

    Args:
        run (RunSize): Images, batch and steps.
        words (int, optional): K, if the config has a number.

    Returns:
        dict[str, float]: Learning rate, momentum of the teacher, K and K_new,
        by their keys of a config.
    """
    # From the paper's rate: docs/benchmarks/own_images.md.
    lr = float(f'{1.2e-3 * SCALINGS["sqrt"](run.batch / 2048):.3g}')
    # 1 - momentum falls with the root of the steps, from .1 for the demo's
    # 1400 steps to the paper's .01 for its 125 000.
    left = 0.1 * (1250 / run.steps) ** 0.5
    momentum = round(1 - min(0.1, max(0.004, left)), 4)
    warmup = max(1, 0.15 * run.steps)
    if words is None:
        # K grows with the root of the images: 1024 for CIFAR-10's 50 000, 4096
        # for the paper's 1.28 million. Fewer than 1024 learn less, even from
        # few images: docs/benchmarks/own_images.md.
        power = round(math.log2(1024 * math.sqrt(run.images / 50_000)))
        # At most as many words as the images of the warm-up can renew.
        filled = math.floor(math.log2(run.batch * warmup))
        words = 2 ** max(6, min(12, max(10, power), filled))
    # The paper uses 4. A short run needs more, so that no word of the initial
    # noise outlives the warm-up. Each new word is of another image, and their
    # number divides K.
    wanted = max(4, words / warmup)
    most = run.batch - run.missing
    fitting = [n for n in range(1, most + 1) if words % n == 0]
    new_words = min((n for n in fitting if n >= wanted), default=fitting[-1])
    return {LR: lr, MOMENTUM: momentum, WORDS: words, NEW_WORDS: new_words}


def resumed_words(cfg: Config) -> int | None:
    """Return the number of words of the run that a config resumes.

    More epochs would let ``num_words='auto'`` be another number.

    Args:
        cfg (Config): What :func:`~mmmoca.engine.config.read_run` returned. All
            processes call this.

    Returns:
        int | None: The number; None if no run is resumed, or the config has a
        number itself.
    """
    if not cfg.get('resume') or place(cfg, WORDS)[1] != 'auto':
        return None
    address = cfg.get('load_from')
    if address is None:
        address = on_main_process(_newest, cfg.work_dir)
    if address is None:
        return None
    with local_file(os.fspath(address)) as file:
        state = read_checkpoint(file, lazy=True).get('state_dict') or {}
    words = state.get('codebook.words')
    return None if words is None else len(words)


def _newest(folder: str) -> Path | None:
    """Return the newest checkpoint of a run, by epochs or by iterations."""
    found = (newest_checkpoint(folder, name)[0] for name in _CHECKPOINTS)
    return next(filter(None, found), None)


def complete_recipe(
    cfg: Config, images: int | None = None, words: int | None = None
) -> dict[str, float]:
    """Write a number wherever a config of pretraining says 'auto'.

    Every process calls this before it builds the runner.

    Args:
        cfg (Config): The config, changed in place.
        images (int, optional): See :func:`run_size`.
        words (int, optional): See :func:`resumed_words`.

    Returns:
        dict[str, float]: The numbers written, by key.

    Raises:
        ValueError: If the images fill no batch.
    """
    keys = LR, MOMENTUM, WORDS, NEW_WORDS
    given = {key: place(cfg, key)[1] for key in keys}
    if 'auto' not in given.values():
        return {}
    run = run_size(cfg, images)
    words = words if given[WORDS] == 'auto' else given[WORDS]
    numbers = recipe_numbers(run, words)
    written = {key: numbers[key] for key in keys if given[key] == 'auto'}
    cfg.merge_from_dict(written)
    if LR in written and cfg.get('auto_scale_lr'):
        # The rate fits this batch; there is nothing left to scale.
        cfg.auto_scale_lr.update(enable=False, base_batch_size=run.batch)
    return written


def scale_lr(cfg: Config) -> dict[str, float]:
    """Scale the learning rate by the batch if ``auto_scale_lr`` is enabled.

    MMEngine would scale all parameter groups, those with a rate of their own
    too, and would leave out accumulated micro-batches. ``auto_scale_lr.rule``
    is 'linear', as MMEngine's, or 'sqrt'.

    Args:
        cfg (Config): The config, changed in place: its rate becomes that of
            its own batch, which becomes the ``base_batch_size``.

    Returns:
        dict[str, float]: The rate written, by its key; empty if none was.

    Raises:
        ValueError: If the config does not say which batch its rate is for,
            or has another rule.
    """
    scaling = cfg.get('auto_scale_lr') or {}
    if not scaling.get('enable'):
        return {}
    if 'base_batch_size' not in scaling:
        raise ValueError(
            'write auto_scale_lr.base_batch_size, the images that lr is for'
        )
    rule = scaling.get('rule', 'linear')
    if rule not in SCALINGS:
        raise ValueError(
            f'auto_scale_lr.rule={rule!r}: write one of {[*SCALINGS]}'
        )
    batch, base = global_batch_size(cfg), scaling.base_batch_size
    lr = cfg.optim_wrapper.optimizer.lr * SCALINGS[rule](batch / base)
    scaling.update(enable=False, base_batch_size=batch)
    cfg.optim_wrapper.optimizer.lr = lr
    return {} if batch == base else {LR: lr}


def count_micro_batches(cfg: Config) -> int:
    """Count the iterations of an optimiser step."""
    return cfg.optim_wrapper.get('accumulative_counts', 1)


def global_batch_size(cfg: Config) -> int:
    """Count the images of an optimiser step.

    Args:
        cfg (Config): A config with a ``train_dataloader``.

    Returns:
        int: Processes of its launcher x batch size x micro-batches.
    """
    batch = cfg.train_dataloader.batch_size * started_processes(cfg)
    return batch * count_micro_batches(cfg)


def training_set(cfg: Config) -> BaseDataset:
    """Build the training set of a config.

    Args:
        cfg (Config): A config with a ``train_dataloader``.

    Returns:
        BaseDataset: The data set. :func:`run_size` counts it and the loader
        of the run takes it, so that its images are listed only once.
    """
    init_default_scope(cfg.get('default_scope', 'mmpretrain'))
    with without_idle_warnings(), explained(cfg):
        return DATASETS.build(cfg.train_dataloader.dataset)


def count_iterations(cfg: Config, images: int) -> int:
    """Count the iterations of a run with a number of images."""
    if (iterations := cfg.train_cfg.get('max_iters')) is not None:
        return iterations
    loader, processes = cfg.train_dataloader, started_processes(cfg)
    # Other samplers round up, so that all processes have equally many.
    rounds_down = (loader.get('sampler') or {}).get('drop_last')
    share = images // processes if rounds_down else -(-images // processes)
    size = loader.batch_size
    epoch = share // size if loader.get('drop_last') else -(-share // size)
    epoch = min(epoch, loader.get('num_batch_per_epoch') or epoch)
    return epoch * cfg.train_cfg.max_epochs


def run_size(cfg: Config, images: int | None = None) -> RunSize:
    """Count images, batch and steps of the run that a config describes.

    Args:
        cfg (Config): A config with a ``train_dataloader``.
        images (int, optional): Number of images in its data set. Without it
            the data set is built and counted.

    Returns:
        RunSize: The numbers.

    Raises:
        ValueError: If the run has no step.
    """
    images = len(training_set(cfg)) if images is None else images
    batch, micro = global_batch_size(cfg), count_micro_batches(cfg)
    iterations = count_iterations(cfg, images)
    steps = iterations // micro
    if not steps:
        raise ValueError(
            f'{images} images fill no step of {batch}: lower '
            'train_dataloader.batch_size'
        )
    loader = cfg.train_dataloader
    sampler = loader.get('sampler') or {}
    left_out = images % started_processes(cfg) * sampler.get('drop_last', 0)
    endless = (
        sampler.get('infinite') or short_name(sampler) == 'InfiniteSampler'
    )
    keeps_rest = not (loader.get('drop_last') or endless)
    fewest = fewest_images(
        images - left_out, batch // micro, iterations, micro, keeps_rest
    )
    return RunSize(images, batch, steps, batch - fewest)
