# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Settings that follow from the images, the batch and the length of a run.

A config writes 'auto' for them; see ``docs/pretrain.md`` for the rules.
"""

import math
import os
from functools import reduce
from typing import Any, NamedTuple

from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope

__all__ = [
    'INCOMPLETE',
    'Run',
    'complete_recipe',
    'recipe_numbers',
    'run_of',
]

INCOMPLETE = "{key}='auto': mmmoca.engine.complete_recipe(cfg) writes a number"

LR = 'optim_wrapper.optimizer.lr'
MOMENTUM = 'default_hooks.teacher_ema.momentum'
WORDS = 'model.codebook.num_words'
NEW_WORDS = 'model.codebook.num_new_words'

_PROCESSES = dict(
    pytorch='WORLD_SIZE', slurm='SLURM_NTASKS', mpi='OMPI_COMM_WORLD_SIZE'
)


class Run(NamedTuple):
    """What the rules ask of a run.

    Attributes:
        images (int): N, of the training set.
        batch (int): B, images of an optimiser step.
        steps (int): S, optimiser steps.
    """

    images: int
    batch: int
    steps: int


def recipe_numbers(run: Run, words: int | None = None) -> dict[str, float]:
    """What the rules give for a run.

    Args:
        run (Run): Images, batch and steps.
        words (int, optional): K, where it is given.

    Returns:
        dict[str, float]: Learning rate, momentum of the teacher, K and K_new,
        by their keys of a config.
    """
    # Linear, as in the authors' code and by --auto-scale-lr.
    lr = float(f'{1.5e-4 * run.batch / 256:.3g}')
    # A line, in logarithms, from the .9 of the quick start's 1400 steps to
    # the paper's .99 for its 125 000.
    left = 0.1 * (1250 / run.steps) ** 0.5
    momentum = round(1 - min(0.1, max(0.004, left)), 4)
    warmup = max(1, 0.15 * run.steps)
    if words is None:
        # Through 1024 for CIFAR-10's 50 000 images and the paper's 4096 for
        # its 1.28 million. Fewer words for fewer images learn less:
        # projects/own_images.
        power = round(math.log2(1024 * math.sqrt(run.images / 50_000)))
        # But no more than a word of each image can renew in the warm-up.
        filled = math.floor(math.log2(run.batch * warmup))
        words = 2 ** max(6, min(12, max(10, power), filled))
    # The paper's 4; more where the words of step 0, which are noise, would
    # outlive the warm-up. Each is of another image, and they divide K.
    wanted = max(4, words / warmup)
    fitting = [n for n in range(1, run.batch + 1) if words % n == 0]
    new_words = min((n for n in fitting if n >= wanted), default=fitting[-1])
    return {LR: lr, MOMENTUM: momentum, WORDS: words, NEW_WORDS: new_words}


def complete_recipe(cfg: Config) -> dict[str, float]:
    """Write a number wherever a config of pretraining says 'auto'.

    To be called before the runner is built, on every process.

    Args:
        cfg (Config): The config, changed in place.

    Returns:
        dict[str, float]: What was written, by key.

    Raises:
        ValueError: If the run has no step, as its images fill no batch.
    """

    def inner(part: Any, name: str) -> Any:
        return (part or {}).get(name)

    keys = LR, MOMENTUM, WORDS, NEW_WORDS
    said = {key: reduce(inner, key.split('.'), cfg) for key in keys}
    if 'auto' not in said.values():
        return {}
    run = run_of(cfg)
    words = None if said[WORDS] == 'auto' else said[WORDS]
    numbers = recipe_numbers(run, words)
    written = {key: numbers[key] for key in keys if said[key] == 'auto'}
    cfg.merge_from_dict(written)
    if LR in written and cfg.get('auto_scale_lr'):
        # The rate is that of this batch; there is nothing left to scale.
        cfg.auto_scale_lr.update(enable=False, base_batch_size=run.batch)
    return written


def run_of(cfg: Config) -> Run:
    """Images, batch and steps of the run that a config describes.

    Args:
        cfg (Config): A config with a ``train_dataloader``, whose data set is
            built to count its images.

    Returns:
        Run: See there.

    Raises:
        ValueError: If the run has no step.
    """
    init_default_scope(cfg.get('default_scope', 'mmpretrain'))
    images = len(DATASETS.build(cfg.train_dataloader.dataset))
    micro_batches = cfg.optim_wrapper.get('accumulative_counts', 1)
    processes = int(os.environ.get(_PROCESSES.get(cfg.get('launcher'), ''), 1))
    batch = cfg.train_dataloader.batch_size * processes
    iterations = cfg.train_cfg.get('max_iters')
    if iterations is None:
        iterations = images // batch * cfg.train_cfg.max_epochs
    steps = iterations // micro_batches
    batch *= micro_batches
    if not steps:
        raise ValueError(
            f'{images} images fill no step of {batch}: lower '
            'train_dataloader.batch_size'
        )
    return Run(images, batch, steps)
