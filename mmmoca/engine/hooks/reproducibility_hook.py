# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import random

import numpy as np
import torch
from mmengine.dist import all_gather, get_rank, get_world_size
from mmengine.hooks import Hook
from mmengine.runner import BaseLoop, EpochBasedTrainLoop, Runner
from torch.utils.data import BatchSampler, Sampler

from mmmoca.datasets import ResumableBatchSampler, SeededSampler
from mmmoca.engine.mmengine import is_training, micro_batches, resumes
from mmmoca.engine.processes import on_main_process
from mmmoca.engine.resume_check import (
    check_pairs,
    images_digest,
    paired_parts,
    training_settings,
    warn_of_changes,
)
from mmmoca.engine.settings import unwritten_settings
from mmmoca.engine.steps import mix_seed
from mmmoca.messages import listed
from mmmoca.registry import HOOKS


@HOOKS.register_module()
class ReproducibilityHook(Hook):
    """Makes a resumed run end like one that was never stopped.

    Before each iteration the hook seeds Python's, NumPy's and PyTorch's
    generators from the run's seed, the rank and the iteration, so that no
    random state has to be saved. :class:`~mmmoca.datasets.SeededSampler` does
    the same for the data. With it, an epoch-based run continues within its
    epoch, and does not reload the images that it has seen. With another
    sampler, the epoch starts again. It also starts again with a batch sampler
    other than PyTorch's ``BatchSampler``, unless this batch sampler is inside
    a :class:`~mmmoca.datasets.ResumableBatchSampler`.

    The number of ranks may change at resume if the global batch stays the
    same. The order of the images, their views and the schedules then continue
    exactly. The codebook's draws, the masks and rounding errors depend on the
    number of ranks; so do the batches of a sampler that groups images.

    A resumed run uses the seed in its checkpoint. A warning names the training
    settings that differ from those in the checkpoint.

    Raises:
        ValueError: Before training, if the processes have different seeds. At
            resume, if one of these has changed: the images, the global batch,
            the micro-batches per step, the iterations per epoch (a checkpoint
            records its position in iterations), the kinds of schedules, or
            the parameters in the optimiser's groups.
    """

    def __init__(self) -> None:
        self._images: str | None = None

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Check that the run can continue the one in the checkpoint."""
        if not (resumes(runner) and is_training(runner)):
            return
        loop, meta = runner.train_loop, checkpoint['meta']
        check_pairs(runner, meta)
        for name, now in _counts(runner).items():
            before = meta.get(name)
            if before not in (None, now):
                raise ValueError(
                    f'the run to resume had {name}={before}, but this one has '
                    f'{now}: change train_dataloader or '
                    'optim_wrapper.accumulative_counts, or start a new run '
                    'from its weights (--init FILE, another --work-dir)'
                )
        images = on_main_process(self._digest, runner)
        before = str(meta.get('images', images))
        if before != images and before.split()[0] == images.split()[0]:
            raise ValueError(
                'the run to resume had other images or labels, or had them in '
                'another order: set train_dataloader.dataset to its images, '
                'or start a new run from its weights (--init FILE, another '
                '--work-dir)'
            )
        warn_of_changes(runner, meta.get('settings'))
        if not isinstance(loop, EpochBasedTrainLoop):
            return
        length = len(loop.dataloader)
        if not 0 <= meta['iter'] - meta['epoch'] * length <= length:
            raise ValueError(
                f'the checkpoint is at iteration {meta["iter"]} after '
                f'{meta["epoch"]} epochs, which does not fit epochs of '
                f'{length} iterations: resume with the loop and the '
                'train_dataloader of its run'
            )
        if not _can_skip(loop):
            start = meta['epoch'] * length
            if meta['iter'] != start:
                runner.logger.warning(
                    f'epoch {meta["epoch"] + 1} starts again: to continue '
                    'within it, the train_dataloader needs '
                    'mmmoca.SeededSampler, and '
                    'mmmoca.ResumableBatchSampler around its batch_sampler, '
                    'if it has one'
                )
                meta['iter'] = start

    def before_run(self, runner: Runner) -> None:
        """Warn of settings without effect; fit the sampler to the loop."""
        if left := unwritten_settings(runner.cfg):
            runner.logger.warning(
                f'the run ignores the settings {listed(left)}: read the '
                'config with mmmoca.engine.config.read_run, or train with '
                'tools/train.py'
            )
        if not is_training(runner):
            return
        self._seed = runner.seed  # MMEngine built the sampler with it
        sampler = _sampler(runner.train_loop)
        if isinstance(sampler, SeededSampler):
            # An iteration-based loop does not count epochs, so its sampler
            # must not end. At resume the loop itself skips the images it has
            # seen.
            sampler.infinite = not isinstance(
                runner.train_loop, EpochBasedTrainLoop
            )

    def before_train(self, runner: Runner) -> None:
        """Check the seeds; set the sampler's seed and the images to skip.

        Log a warning if a resumed run is already complete.
        """
        seeds = torch.stack(all_gather(torch.tensor(runner.seed)))
        if len(seeds.unique()) > 1:
            raise ValueError(
                'the processes have different seeds and would not divide the '
                'images of an epoch among themselves: leave out '
                'randomness.diff_rank_seed'
            )
        loop = runner.train_loop
        if runner.iter >= runner.max_iters:
            runner.logger.warning(
                f'the run is complete, {runner.iter} of {runner.max_iters} '
                'iterations. To train longer, raise epochs, max_epochs or '
                'max_iters, whichever the config has'
            )
        sampler = _sampler(loop)
        own = isinstance(sampler, SeededSampler)
        # Loading a checkpoint has replaced runner.seed. A sampler from another
        # package gets the new seed, unless the config gives it its own seed.
        if own or getattr(sampler, 'seed', None) == self._seed:
            sampler.seed = runner.seed
        if isinstance(loop, EpochBasedTrainLoop) and _can_skip(loop):
            batches = loop.iter - loop.epoch * len(loop.dataloader)
            batch_sampler = loop.dataloader.batch_sampler
            if isinstance(batch_sampler, ResumableBatchSampler):
                batch_sampler.skip(batches)
            else:
                sampler.skip(batches * batch_sampler.batch_size)

    def before_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: dict | None = None
    ) -> None:
        """Seed the generators of masks, dropout, mixup and cutmix."""
        seed = mix_seed(runner.seed, get_rank(), runner.iter)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Save the facts that a resumed run is compared with."""
        settings = training_settings(runner.cfg)
        images = self._digest(runner)
        checkpoint['meta'] |= _counts(runner)
        checkpoint['meta'] |= dict(settings=settings, images=images)
        checkpoint['meta'] |= paired_parts(runner)

    def _digest(self, runner: Runner) -> str:
        """Return the digest of the training images; compute it once."""
        if self._images is None:
            self._images = images_digest(runner.train_dataloader.dataset)
        return self._images


def _sampler(loop: BaseLoop) -> Sampler:
    # If the config names a batch sampler, `dataloader.sampler` is not the one
    # that is used.
    return loop.dataloader.batch_sampler.sampler


def _can_skip(loop: BaseLoop) -> bool:
    batch_sampler = loop.dataloader.batch_sampler
    return isinstance(_sampler(loop), SeededSampler) and (
        type(batch_sampler) in (BatchSampler, ResumableBatchSampler)
    )


def _counts(runner: Runner) -> dict[str, int]:
    loader = runner.train_dataloader
    parts = micro_batches(runner.optim_wrapper)
    batch = loader.batch_sampler.batch_size * get_world_size()
    counts = dict(
        global_batch_size=batch * parts,
        micro_batches=parts,
        num_images=len(loader.dataset),
    )
    if isinstance(runner.train_loop, EpochBasedTrainLoop):
        # With samplers other than SeededSampler, this may also depend on the
        # number of processes.
        counts['iterations_per_epoch'] = len(loader)
    return counts
