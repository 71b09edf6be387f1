# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import random

import numpy as np
import torch
from mmengine.dist import all_gather, get_rank, get_world_size
from mmengine.hooks import Hook
from mmengine.runner import EpochBasedTrainLoop, Runner

from mmmoca.datasets import SeededSampler
from mmmoca.engine.steps import global_batch_size, mix_seed
from mmmoca.registry import HOOKS

__all__ = ['ReproducibilityHook']


# What the counts in a checkpoint are of, and the keys that they follow from.
_COUNTED = dict(
    global_batch_size=('images a step', 'train_dataloader.batch_size'),
    micro_batches=(
        'micro-batches a step',
        'train_dataloader.batch_size and optim_wrapper.accumulative_counts',
    ),
    num_images=('training images', 'train_dataloader.dataset'),
)


@HOOKS.register_module()
class ReproducibilityHook(Hook):
    """Makes a run that was stopped and resumed the same as one that was not.

    No random state has to be saved: Python's, NumPy's and PyTorch's
    generators are seeded from the run's seed, the rank and the iteration
    before each iteration, and
    :class:`~mmmoca.datasets.SeededSampler` does the like for the data. An
    epoch-based run goes on where it stopped in the epoch without loading
    what it has seen.

    The number of ranks may change at resume as long as the global batch
    stays: the order and the views of the images, the codebook's draws and
    the schedules go on exactly; masks and rounding depend on the ranks.

    Raises:
        ValueError: Before training, if the processes have different seeds,
            or the sampler has no end where the loop counts epochs; at
            resume, if the global batch, its number of micro-batches or that
            of the images has changed: a run counts iterations.
    """

    def __init__(self) -> None:
        self._resumed: dict[str, int | None] = {}

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Note what an iteration was in the run to be resumed."""
        if runner._resume:
            self._resumed = checkpoint.get('meta', {})

    def before_train(self, runner: Runner) -> None:
        """Check seed and batch size; let the sampler skip what was seen."""
        seeds = torch.stack(all_gather(torch.tensor(runner.seed)))
        if len(seeds.unique()) > 1:
            raise ValueError(
                'the processes have different seeds, so that they would not '
                'share the images of an epoch among them: leave out '
                'randomness.diff_rank_seed. Masks and augmentation differ '
                'without it'
            )
        for name, now in _counts(runner).items():
            before = self._resumed.get(name)
            if before not in (None, now):
                what, key = _COUNTED[name]
                raise ValueError(
                    f'the run to resume had {before} {what}, this one has '
                    f'{now} ({get_world_size()} processes), and it counts '
                    f'iterations: change {key} to match, or start a new run '
                    'with load_from'
                )
        loop = runner.train_loop
        sampler = loop.dataloader.sampler
        if not isinstance(sampler, SeededSampler):
            return
        sampler.seed = runner.seed
        by_epoch = isinstance(loop, EpochBasedTrainLoop)
        if by_epoch and sampler.infinite:
            raise ValueError(
                'the first epoch would never end: write '
                'train_dataloader.sampler.infinite=False'
            )
        if not (by_epoch or sampler.infinite):
            runner.logger.warning(
                'a run by iterations that is resumed would see other images: '
                'write train_dataloader.sampler.infinite=True'
            )
        # An iteration-based loop skips by itself.
        if by_epoch:
            batches = loop.iter - loop.epoch * len(loop.dataloader)
            sampler.skip(batches * loop.dataloader.batch_size)

    def before_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: dict | None = None
    ) -> None:
        """Seed the generators of masks, dropout, mixup and cutmix."""
        seed = mix_seed(runner.seed, get_rank(), runner.iter)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Save what an iteration is with the checkpoint."""
        checkpoint['meta'] |= _counts(runner)


def _counts(runner: Runner) -> dict[str, int | None]:
    return dict(
        global_batch_size=global_batch_size(runner),
        micro_batches=runner.optim_wrapper._accumulative_counts,
        num_images=len(runner.train_dataloader.dataset),
    )
