# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Values that follow from the images, the batch and the length of a run.

A config says 'auto' instead of such a value. The rules are stated in
docs/get_started/own_images.md.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS, init_default_scope

from mmmoca.checkpoints import local_file
from mmmoca.checkpoints.locate import tensors_of
from mmmoca.checkpoints.release import read_converted
from mmmoca.checkpoints.run_folder import newest_checkpoint
from mmmoca.checkpoints.start import START_SCHEME
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


# How the learning rate depends on the number of images per step. The authors
# scale linearly.
SCALINGS: dict[str, Callable[[float], float]] = {
    'linear': float,
    'sqrt': math.sqrt,
}


class RunSize(NamedTuple):
    """The numbers of a run that the rules use.

    Attributes:
        images (int): N, number of images in the training set.
        batch (int): B, number of images in an optimiser step.
        steps (int): S, number of optimiser steps.
        missing (int): B minus the number of images in the smallest step, see
            :func:`~mmmoca.engine.steps.fewest_images`.
    """

    images: int
    batch: int
    steps: int
    missing: int = 0


def recipe_numbers(run: RunSize, words: int | None = None) -> dict[str, float]:
    """Compute the values that follow from the size of a run.

    Args:
        run (RunSize): The images, the batch and the steps.
        words (int, optional): K, the number of words in the codebook. By
            default it is computed.

    Returns:
        dict[str, float]: Learning rate, momentum of the teacher, K, and K_new
        (the number of new words in a step), by their full keys.
    """
    # Scaled from the paper's rate, see docs/benchmarks/own_images.md.
    lr = float(f'{1.2e-3 * SCALINGS["sqrt"](run.batch / 2048):.3g}')
    # 1 - momentum is inversely proportional to the root of the steps: .1 for
    # 1250 steps (the demo has 1400), and the paper's .01 for its 125 000.
    left = 0.1 * (1250 / run.steps) ** 0.5
    momentum = round(1 - min(0.1, max(0.004, left)), 4)
    warmup = max(1, 0.15 * run.steps)
    if words is None:
        # K grows with the root of the number of images: 1024 for CIFAR-10's
        # 50 000, 4096 for the paper's 1.28 million. Fewer than 1024 words give
        # worse features, even for few images: docs/benchmarks/own_images.md.
        power = round(math.log2(1024 * math.sqrt(run.images / 50_000)))
        # At most one word for each image of the warm-up, so that all words can
        # be renewed in it.
        filled = math.floor(math.log2(run.batch * warmup))
        words = 2 ** max(6, min(12, max(10, power), filled))
    # The paper has 4 new words. A short run needs more, so that the warm-up
    # replaces all initial words, which are noise. The new words are from
    # different images of the step, and K_new divides K.
    wanted = max(4, words / warmup)
    most = run.batch - run.missing
    fitting = [n for n in range(1, most + 1) if words % n == 0]
    new_words = min((n for n in fitting if n >= wanted), default=fitting[-1])
    return {LR: lr, MOMENTUM: momentum, WORDS: words, NEW_WORDS: new_words}


def _loaded_words(cfg: Config) -> int | None:
    """Return the loaded checkpoint's K, or None if it has no codebook.

    All processes call this.
    """
    address = cfg.get('load_from')
    if address is None and cfg.get('resume'):
        address = on_main_process(_newest, cfg.work_dir)
    if address is None:
        return None
    with local_file(os.fspath(address).removeprefix(START_SCHEME)) as file:
        groups = tensors_of(read_converted(file, lazy=True)).values()
    name = 'codebook.words'
    return next((len(group[name]) for group in groups if name in group), None)


def _newest(folder: str) -> Path | None:
    """Return the newest checkpoint of a run, named by epoch or iteration."""
    found = (newest_checkpoint(folder, name)[0] for name in _CHECKPOINTS)
    return next(filter(None, found), None)


def complete_recipe(
    cfg: Config, images: int | None = None
) -> dict[str, float]:
    """Write a number wherever a config of pretraining says 'auto'.

    Every process calls this before it builds the runner. A resumed run keeps
    the K of its checkpoint. So does a run that starts from a checkpoint whose
    K is larger than the computed K.

    Args:
        cfg (Config): The config, changed in place.
        images (int, optional): See :func:`run_size`.

    Returns:
        dict[str, float]: The numbers written, by full key.

    Raises:
        CheckpointError: If the checkpoint cannot be read.
        ValueError: If the images do not fill one step.
    """
    keys = LR, MOMENTUM, WORDS, NEW_WORDS
    given = {key: place(cfg, key)[1] for key in keys}
    if 'auto' not in given.values():
        return {}
    run = run_size(cfg, images)
    words = None if given[WORDS] == 'auto' else given[WORDS]
    numbers = recipe_numbers(run, words)
    loaded = _loaded_words(cfg) if words is None else None
    # A run cannot be resumed with another K. A run that starts from a
    # checkpoint with a smaller K begins a new codebook: this is better than
    # keeping a codebook with too few words.
    if loaded and (cfg.get('resume') or loaded > numbers[WORDS]):
        numbers = recipe_numbers(run, loaded)
    written = {key: numbers[key] for key in keys if given[key] == 'auto'}
    cfg.merge_from_dict(written)
    if LR in written and cfg.get('auto_scale_lr'):
        # The rate fits this batch; there is nothing left to scale.
        cfg.auto_scale_lr.update(enable=False, base_batch_size=run.batch)
    return written


def scale_lr(cfg: Config) -> dict[str, float]:
    """Scale the learning rate by the batch if ``auto_scale_lr`` is enabled.

    MMEngine would scale all parameter groups, even those with a rate of their
    own, and would ignore accumulated micro-batches. ``auto_scale_lr.rule``
    is 'linear', which is MMEngine's rule and the default, or 'sqrt'.

    Args:
        cfg (Config): The config, changed in place: its rate is scaled from
            ``base_batch_size`` to its own batch, and ``base_batch_size``
            becomes this batch.

    Returns:
        dict[str, float]: The new rate, by its key; empty if the rate is not
        changed.

    Raises:
        ValueError: If the config does not say which batch its rate is for,
            or has an unknown rule.
    """
    scaling = cfg.get('auto_scale_lr') or {}
    if not scaling.get('enable'):
        return {}
    if 'base_batch_size' not in scaling:
        raise ValueError(
            'set auto_scale_lr.base_batch_size to the number of images per '
            'step that the learning rate was chosen for'
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
    """Return the number of iterations in an optimiser step."""
    return cfg.optim_wrapper.get('accumulative_counts', 1)


def global_batch_size(cfg: Config) -> int:
    """Count the images in an optimiser step.

    Args:
        cfg (Config): A config with a ``train_dataloader``.

    Returns:
        int: Number of processes x batch size x number of micro-batches.
    """
    batch = cfg.train_dataloader.batch_size * started_processes(cfg)
    return batch * count_micro_batches(cfg)


def training_set(cfg: Config) -> BaseDataset:
    """Build the training set of a config.

    Args:
        cfg (Config): A config with a ``train_dataloader``.

    Returns:
        BaseDataset: The data set. It can be counted and then given to
        :func:`~.training.build_runner`, so that its images are listed only
        once.
    """
    init_default_scope(cfg.get('default_scope', 'mmpretrain'))
    with without_idle_warnings(), explained(cfg):
        return DATASETS.build(cfg.train_dataloader.dataset)


def count_iterations(cfg: Config, images: int) -> int:
    """Count the iterations of a run on a given number of images."""
    if (iterations := cfg.train_cfg.get('max_iters')) is not None:
        return iterations
    loader, processes = cfg.train_dataloader, started_processes(cfg)
    # Without `drop_last`, samplers round up, so that all processes get equally
    # many images.
    rounds_down = (loader.get('sampler') or {}).get('drop_last')
    share = images // processes if rounds_down else -(-images // processes)
    size = loader.batch_size
    epoch = share // size if loader.get('drop_last') else -(-share // size)
    epoch = min(epoch, loader.get('num_batch_per_epoch') or epoch)
    return epoch * cfg.train_cfg.max_epochs


def run_size(cfg: Config, images: int | None = None) -> RunSize:
    """Count the images and steps of the run that a config describes.

    Args:
        cfg (Config): A config with a ``train_dataloader``.
        images (int, optional): Number of images in its training set. By
            default the data set is built and counted.

    Returns:
        RunSize: The numbers.

    Raises:
        ValueError: If the images do not fill one step.
    """
    images = len(training_set(cfg)) if images is None else images
    batch, micro = global_batch_size(cfg), count_micro_batches(cfg)
    iterations = count_iterations(cfg, images)
    steps = iterations // micro
    if not steps:
        raise ValueError(
            f'{images} images do not fill a step of {batch}: lower '
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
