# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.

import torch
from mmengine.dist import all_reduce, get_rank, get_world_size
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor

from mmmoca.engine.steps import (
    check_hooks,
    images_per_step,
    mix_seed,
    optimizer_steps,
    skipped,
    stepped,
)
from mmmoca.engine.wrapped_models import unwrap_model
from mmmoca.registry import HOOKS

__all__ = ['CodebookHook', 'pick_new_words']


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

    Raises:
        ValueError: Before training, if the global batch has fewer than
            K_new images, or see :func:`~mmmoca.engine.steps.check_hooks`.
    """

    # Before the StepLogHook and MMEngine's RuntimeInfoHook, which take every
    # output for a scalar.
    priority = 'HIGHEST'

    def __init__(self) -> None:
        self._updates: list[dict] = []

    def before_train(self, runner: Runner) -> None:
        """Check that every step has enough images for the new words."""
        check_hooks(runner)
        needed = unwrap_model(runner.model).codebook.num_new_words
        loader = runner.train_dataloader
        batch_size = getattr(loader, 'batch_size', None)
        if batch_size is None:
            return
        if not loader.drop_last and hasattr(loader.sampler, '__len__'):
            batch_size = len(loader.sampler) % batch_size or batch_size
        images = images_per_step(runner, batch_size)
        if images < needed:
            raise ValueError(
                f'a step can have as few as {images} images, but the '
                f'codebook takes num_new_words={needed} from different '
                'images; use a larger batch, drop_last=True in the '
                'train_dataloader, or a smaller num_new_words'
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
            update
            | {name: update[name].clone() for name in ('candidates', 'msd')}
        )
        codebook = unwrap_model(runner.model).codebook
        outputs['msd'] = codebook.msd
        if not stepped(runner):
            return
        updates, self._updates = self._updates, []
        msd = torch.stack([update['msd'] for update in updates]).mean(dim=0)
        all_reduce(msd, op='mean')
        seed = mix_seed(runner.seed, optimizer_steps(runner))
        generator = torch.Generator().manual_seed(seed)
        words = pick_new_words(
            [update['candidates'] for update in updates],
            [update['batch_size'] for update in updates],
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


def pick_new_words(
    candidates: list[Tensor],
    batch_sizes: list[int],
    num_words: int,
    generator: torch.Generator,
) -> Tensor:
    """Pick words as if drawn from different images of the global batch.

    Every process holds candidates of its own images in random order. The
    shared generator says how many of the images each micro-batch of each
    process gives; the first so many of its candidates are taken.

    Args:
        candidates (List[Tensor]): This process's, from view 1 and view 2,
            one tensor (2, n, D) for each micro-batch.
        batch_sizes (List[int]): Images of each micro-batch on a process.
        num_words (int): K_new.
        generator (torch.Generator): In the same state on every process.

    Returns:
        Tensor: New words, (K_new, D), the same on every process.
    """
    view = int(torch.randint(2, (), generator=generator))
    micro_batch = (
        torch.arange(len(batch_sizes))
        .repeat_interleave(torch.tensor(batch_sizes))
        .repeat(get_world_size())
    )
    rank = torch.arange(get_world_size()).repeat_interleave(sum(batch_sizes))
    images = torch.randperm(len(rank), generator=generator)[:num_words]
    words = candidates[0].new_zeros(num_words, candidates[0].shape[-1])
    used = [0] * len(candidates)
    for row, image in enumerate(images.tolist()):
        if rank[image] == get_rank():
            source = int(micro_batch[image])
            words[row] = candidates[source][view, used[source]]
            used[source] += 1
    # One process fills each row and the others add zeros: exact.
    all_reduce(words, op='sum')
    return words
