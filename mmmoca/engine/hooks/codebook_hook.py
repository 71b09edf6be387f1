# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import math
from collections.abc import Iterable

import torch
from mmengine.dataset import InfiniteSampler
from mmengine.dist import all_reduce, get_world_size
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor

from mmmoca.engine.mmengine import micro_batches
from mmmoca.engine.steps import (
    fewest_images,
    mix_seed,
    optimizer_steps,
    skipped,
    stepped,
    unwrap_model,
)
from mmmoca.models import CodebookUpdate
from mmmoca.registry import HOOKS


@HOOKS.register_module()
class CodebookHook(Hook):
    """Updates the codebook: its words, mu and the mean tokens.

    mu is the running average of the mean similarity difference (MSD). The mean
    tokens, one for each patch position, exist only if the codebook has
    ``centre``.

    After each optimiser step the hook draws K_new (``num_new_words``) images
    from the global batch (all processes, all accumulated micro-batches), the
    same ones on every process. One teacher token of each image becomes a new
    word, and all new words are from the same view. They overwrite the oldest
    words (paper, section 3.1). The draw depends only on the run's seed, the
    step and the number of processes, so a run that is resumed on as many
    processes draws the same words.

    The hook changes nothing if the loss scaler skipped the step, or if any
    process has tokens that are not finite. This is decided on the device,
    from numbers that are the same on all processes. If tokens are not finite,
    the output ``codebook_kept`` is 1, and :class:`StepLogHook` warns.

    Before training the hook warns if the codebook has more words than the run
    can replace.

    Attributes:
        embeddings (Tensor | None): The teacher's mean patch token ([AVG]) of
            each view in the last micro-batch, (2B, D).

    Raises:
        ValueError: Before training, if an optimiser step can have fewer than
            K_new images.
    """

    # This hook comes first. It removes the update from the outputs, because
    # hooks that log expect only scalars in them.
    priority = 'HIGHEST'

    def __init__(self) -> None:
        self.embeddings: Tensor | None = None
        self._updates: list[CodebookUpdate] = []

    def before_train(self, runner: Runner) -> None:
        """Warn of words that stay noise; refuse steps with too few images."""
        codebook = unwrap_model(runner.model).codebook
        words, needed = len(codebook.words), codebook.num_new_words
        left = words - needed * optimizer_steps(runner, runner.max_iters)
        if left > 0:
            runner.logger.warning(
                f'{left} of the {words} words of model.codebook are never '
                'replaced in this run. Unless --init has loaded them, they '
                f'stay random: train for at least {math.ceil(words / needed)} '
                'steps, lower num_words, or raise num_new_words'
            )
        loader = runner.train_dataloader
        batch = loader.batch_sampler.batch_size * get_world_size()
        endless = isinstance(loader.sampler, InfiniteSampler)
        endless |= getattr(loader.sampler, 'infinite', False)
        images = len(loader.dataset)
        fewest = fewest_images(
            # Some samplers drop images, so that all processes get the same
            # number.
            min(images, getattr(loader.sampler, 'total_size', images)),
            batch,
            runner.max_iters,
            micro_batches(runner.optim_wrapper),
            not (loader.batch_sampler.drop_last or endless),
        )
        _check_images_of_a_step(fewest, batch, needed)

    def after_train_iter(
        self, runner: Runner, *_, outputs: dict, **__
    ) -> None:
        """Collect updates of micro-batches; apply them after the step."""
        update = outputs.pop('codebook_update')
        # CUDA graphs (torch.compile) reuse this memory in the next forward
        # pass.
        self._updates.append(
            CodebookUpdate(
                *(x.clone() if isinstance(x, Tensor) else x for x in update)
            )
        )
        self.embeddings = self._updates[-1].embeddings
        codebook = unwrap_model(runner.model).codebook
        outputs['msd'] = codebook.msd
        if not stepped(runner):
            return
        updates, self._updates = self._updates, []
        msd = _global_mean(update.msd for update in updates)
        seed = mix_seed(runner.seed, optimizer_steps(runner, runner.iter + 1))
        generator = torch.Generator().manual_seed(seed)
        words = codebook.word_sampler.pick(
            [update.candidates for update in updates],
            [update.batch_size for update in updates],
            codebook.num_new_words,
            generator,
        )
        # The loss scaler does not check all tokens: it checks the gradients of
        # the loss, which does not use every token.
        accepted = msd.isfinite().all() & words.isfinite().all()
        mean = None
        if codebook.centre is not None:
            mean = _global_mean(update.token_mean for update in updates)
            accepted &= mean.isfinite().all()
        outputs['codebook_kept'] = ~accepted
        skip = skipped(runner)
        if skip is not None:
            accepted = accepted & (skip == 0)
        codebook.update(words, msd, mean, accepted)


def _global_mean(values: Iterable[Tensor]) -> Tensor:
    """Average over micro-batches and processes."""
    mean = torch.stack(list(values)).mean(dim=0)
    all_reduce(mean, op='mean')
    return mean


def _check_images_of_a_step(fewest: int, batch: int, needed: int) -> None:
    """Check that each optimiser step has enough images for new words.

    Args:
        fewest (int): Number of images in the smallest step.
        batch (int): Number of images in an iteration, on all processes
            together.
        needed (int): K_new.

    Raises:
        ValueError: If ``fewest`` is below ``needed``.
    """
    if fewest >= needed:
        return
    remedy = 'use a larger batch or fewer new words'
    if batch >= needed:
        remedy += (
            '; or set drop_last=True in the train_dataloader; or make the '
            'number of iterations a multiple of accumulative_counts'
        )
    raise ValueError(
        f'a step can have as few as {fewest} images, too few for '
        f'num_new_words={needed}: {remedy}'
    )
