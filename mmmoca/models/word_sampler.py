# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Sequence

import torch
from mmengine.dist import all_reduce, get_rank, get_world_size
from torch import Tensor

from mmmoca.registry import TASK_UTILS


@TASK_UTILS.register_module()
class RandomTokenSampler:
    """Chooses new words: one random patch token from each of K_new images.

    Paper, section 3.1. The images are drawn from the global batch (all
    processes, all micro-batches). In the forward pass :meth:`draw` draws
    candidates from the images of each process. After the step :meth:`pick`
    chooses among the candidates of all processes; every process gets the same
    words.

    To choose words in another way, set ``codebook.word_sampler`` to a subclass
    that overrides :meth:`describe`. The codebook normalises the words.
    """

    def draw(self, tokens: Tensor, inner: Tensor, num_words: int) -> Tensor:
        """Draw this process's candidates, in random order.

        Args:
            tokens (Tensor): Teacher tokens of both views, (2, B, L, D).
            inner (Tensor): Indices of the patches to draw from, (n_inner, ).
            num_words (int): K_new.

        Returns:
            Tensor: A vector for each view of each chosen image,
            (2, min(K_new, B), D). No image is chosen twice.

        Raises:
            ValueError: If :meth:`describe` returns a wrong number of vectors.
        """
        images = torch.randperm(tokens.shape[1], device=tokens.device)
        chosen = tokens[:, images[:num_words]]
        words = self.describe(chosen, inner)
        if words.shape[:2] != chosen.shape[:2]:
            raise ValueError(
                f'{type(self).__name__}.describe must return one vector for '
                f'each view of {chosen.shape[1]} images, got '
                f'{tuple(words.shape)}'
            )
        return words

    def describe(self, tokens: Tensor, inner: Tensor) -> Tensor:
        """Take one random inner token of each image.

        It has the same patch index in both views.

        Args:
            tokens (Tensor): Teacher tokens of both views, (2, n, L, D).
            inner (Tensor): Indices of the patches to draw from, (n_inner, ).

        Returns:
            Tensor: The tokens that are drawn, (2, n, D).
        """
        images = torch.arange(tokens.shape[1], device=tokens.device)
        patches = torch.randint(len(inner), images.shape, device=tokens.device)
        return tokens[:, images, inner[patches]]

    def pick(
        self,
        candidates: Sequence[Tensor],
        batch_sizes: Sequence[int],
        num_words: int,
        generator: torch.Generator,
    ) -> Tensor:
        """Pick words from different images of the global batch.

        The shared generator chooses the view, and the number of words that
        each micro-batch of each process contributes. These words are the
        first candidates of the micro-batch.

        Args:
            candidates (Sequence[Tensor]): Candidates of this process, one
                tensor (2, n, D) for each micro-batch.
            batch_sizes (Sequence[int]): Number of images in each micro-batch
                of one process.
            num_words (int): K_new.
            generator (torch.Generator): Has the same state on every process.

        Returns:
            Tensor: New words, (K_new, D), the same on every process.

        Raises:
            ValueError: If the global batch has fewer than K_new images.
        """
        view = int(torch.randint(2, (), generator=generator))
        queues = [iter(part[view]) for part in candidates]
        # The queue that each image of this process comes from.
        sources = [q for q, n in zip(queues, batch_sizes) for _ in range(n)]
        total = len(sources) * get_world_size()
        if total < num_words:
            raise ValueError(
                f'a step of {total} images cannot give {num_words} new '
                'words, each from a different image: use a larger batch or a '
                'smaller num_new_words'
            )
        images = torch.randperm(total, generator=generator)[:num_words]
        words = candidates[0].new_zeros(num_words, candidates[0].shape[-1])
        for row, image in enumerate(images.tolist()):
            rank, place = divmod(image, len(sources))
            if rank == get_rank():
                words[row] = next(sources[place])
        # Exact: one process fills each row, and the others add zeros.
        all_reduce(words, op='sum')
        return words
