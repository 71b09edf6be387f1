# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.

import torch
from mmengine.dist import all_reduce, get_world_size
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmmoca.engine.recipe import codebook_advice
from mmmoca.engine.steps import (
    check_hooks,
    images_per_step,
    is_infinite,
    mix_seed,
    optimizer_steps,
    skipped,
    stepped,
    total_optimizer_steps,
    unwrap_model,
)
from mmmoca.models import CodebookUpdate
from mmmoca.registry import HOOKS

__all__ = ['CodebookHook']


@HOOKS.register_module()
class CodebookHook(Hook):
    """Writes the new words and mu into the codebook, its only writer.

    After each optimiser step, K_new images are drawn from the global batch
    (all processes, all accumulated micro-batches), the same on every
    process, and one teacher token of each, all from one view, overwrites the
    oldest words (paper, section 3.1). The draw depends on the run's seed and
    the step alone, so a resumed run draws the same.

    The codebook stays as it was, words, pointer and mu, where the loss
    scaler skipped the step or a process had tokens that are not finite. Every
    process decides from the same numbers, on the device.

    Args:
        advise (bool): Whether to warn, before training, of a codebook that
            is too large for the run. Defaults to True.

    Raises:
        ValueError: Before training, if the global batch or the data set has
            fewer than K_new images, or see
            :func:`~mmmoca.engine.steps.check_hooks`.
    """

    # Before the StepLogHook and MMEngine's RuntimeInfoHook, which take every
    # output for a scalar.
    priority = 'HIGHEST'

    def __init__(self, advise: bool = True) -> None:
        self.advise = advise
        self._updates: list[CodebookUpdate] = []

    def before_train(self, runner: Runner) -> None:
        """Check that every step has enough images for the new words."""
        check_hooks(runner)
        codebook = unwrap_model(runner.model).codebook
        needed = codebook.num_new_words
        loader = runner.train_dataloader
        advice = codebook_advice(
            total_optimizer_steps(runner), len(codebook.words), needed
        )
        if self.advise and advice:
            runner.logger.warning(advice)
        if len(loader.dataset) < needed:
            raise ValueError(
                f'the data set has {len(loader.dataset)} images, but the '
                f'codebook takes num_new_words={needed} from different '
                'images: give more images, or a smaller num_new_words'
            )
        batch_size = getattr(loader, 'batch_size', None)
        if batch_size is None:
            return
        partial = not (loader.drop_last or is_infinite(loader.sampler))
        uneven = getattr(loader.sampler, 'round_up', True) is False
        if partial and uneven and get_world_size() > 1:
            raise ValueError(
                'the processes would have batches of different sizes: write '
                'drop_last=True in the train_dataloader, or round_up=True in '
                'its sampler'
            )
        if partial and hasattr(loader.sampler, '__len__'):
            batch_size = len(loader.sampler) % batch_size or batch_size
        micro_batches = runner.optim_wrapper._accumulative_counts
        # The last step takes what is left.
        left = runner.max_iters % micro_batches or micro_batches
        images = images_per_step(runner, batch_size) * left // micro_batches
        if images < needed:
            raise ValueError(
                f'a step can have as few as {images} images, but the '
                f'codebook takes num_new_words={needed} from different '
                'images; use a larger batch, drop_last=True in the '
                'train_dataloader, a smaller num_new_words, or where '
                f'{micro_batches} micro-batches are a step, a multiple of '
                f'them in the place of {runner.max_iters} iterations'
            )

    def after_train_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: dict | None = None,
        outputs: dict | None = None,
    ) -> None:
        """Collect the update of a micro-batch; commit it after the step."""
        update = outputs.pop('codebook_update')
        # Under CUDA graphs (torch.compile) the next forward pass writes its
        # results where this one's are.
        self._updates.append(
            update._replace(
                candidates=update.candidates.clone(), msd=update.msd.clone()
            )
        )
        codebook = unwrap_model(runner.model).codebook
        outputs['msd'] = codebook.msd
        if not stepped(runner):
            return
        updates, self._updates = self._updates, []
        msd = torch.stack([update.msd for update in updates]).mean(dim=0)
        all_reduce(msd, op='mean')
        seed = mix_seed(runner.seed, optimizer_steps(runner))
        generator = torch.Generator().manual_seed(seed)
        words = codebook.word_sampler.pick(
            [update.candidates for update in updates],
            [update.batch_size for update in updates],
            codebook.num_new_words,
            generator,
        )
        # The loss, whose gradients a scaler checks, need not see every token.
        accepted = msd.isfinite().all() & words.isfinite().all()
        skip = skipped(runner)
        if skip is not None:
            accepted &= skip == 0
        codebook.update_msd(msd, accepted)
        codebook.enqueue(words, accepted)
