# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import torch
from mmengine.dist import get_rank, get_world_size
from mmengine.hooks import Hook
from mmengine.runner import EpochBasedTrainLoop, Runner

from mmmoca.registry import HOOKS

from .steps import mix_seed

__all__ = ['ReproducibilityHook']


@HOOKS.register_module()
class ReproducibilityHook(Hook):
    """Makes a run that was stopped and resumed the same as one that was not.

    No random state has to be saved: PyTorch's generators are seeded from
    the run's seed, the rank and the iteration before each iteration, and
    :class:`~mmmoca.datasets.SeededSampler` does the like for the data. An
    epoch-based run goes on where it stopped in the epoch without loading
    what it has seen.

    The number of ranks may change at resume as long as the global batch
    stays: order of the images, codebook draws and schedules go on exactly,
    while masks and augmentation-free rounding follow the new ranks.

    Raises:
        ValueError: At resume, if the global batch size has changed: the
            schedules count iterations.
    """

    def before_train(self, runner: Runner) -> None:
        """Seed the sampler and let it skip what a resumed run has seen."""
        loop = runner.train_loop
        sampler = loop.dataloader.sampler
        if not hasattr(sampler, 'skip'):
            return
        sampler.seed = runner.seed
        # An iteration-based loop skips by itself.
        if isinstance(loop, EpochBasedTrainLoop):
            batches = loop.iter - loop.epoch * len(loop.dataloader)
            sampler.skip(batches * loop.dataloader.batch_size)

    def before_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: dict | None = None
    ) -> None:
        """Seed the generators of masks and dropout."""
        torch.manual_seed(mix_seed(runner.seed, get_rank(), runner.iter))

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Note the global batch size."""
        checkpoint['meta']['global_batch_size'] = _global_batch_size(runner)

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Check the global batch size of a run to be resumed."""
        saved = checkpoint.get('meta', {}).get('global_batch_size')
        if not runner._resume or saved is None:
            return
        current = _global_batch_size(runner)
        if saved != current:
            raise ValueError(
                f'the run to resume had {saved} images a step, this one has '
                f'{current} ({get_world_size()} processes), and schedules '
                'count steps: change train_dataloader.batch_size or '
                'optim_wrapper.accumulative_counts to match, or start a new '
                'run with load_from'
            )


def _global_batch_size(runner: Runner) -> int:
    loader = runner.train_loop.dataloader
    images = loader.batch_size * get_world_size()
    return images * runner.optim_wrapper._accumulative_counts
