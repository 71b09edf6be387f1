# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Alternatives to random tokens as the codebook's new words."""

from collections.abc import Sequence

import torch
from mmengine.dist import all_gather
from torch import Tensor

from mmmoca.models import RandomTokenSampler
from mmmoca.registry import TASK_UTILS


@TASK_UTILS.register_module()
class AverageTokenSampler(RandomTokenSampler):
    """A new word is the normalised mean of an image's inner tokens."""

    def describe(self, tokens: Tensor, inner: Tensor) -> Tensor:
        """Average the inner tokens of each image.

        Args:
            tokens (Tensor): Teacher tokens of both views, (2, n, L, D).
            inner (Tensor): Indices of the inner patches, (n_inner, ).

        Returns:
            Tensor: The means, (2, n, D).
        """
        return tokens[:, :, inner].mean(dim=2)


@TASK_UTILS.register_module()
class FarthestPointSampler(RandomTokenSampler):
    """New words are tokens of the global batch that are far from each other.

    The method is from appendix A.2 of the paper, which gives no details. Here
    each image of the global batch offers one random inner token. The first
    word is a random one of these tokens. Each further word is the token that
    is farthest from its nearest chosen word.
    """

    def draw(self, tokens: Tensor, inner: Tensor, num_words: int) -> Tensor:
        """Draw a candidate from every image of this process.

        Args:
            tokens (Tensor): Teacher tokens of both views, (2, B, L, D).
            inner (Tensor): Indices of the patches to draw from, (n_inner, ).
            num_words (int): K_new, not used.

        Returns:
            Tensor: The candidates, (2, B, D).
        """
        return super().draw(tokens, inner, tokens.shape[1])

    def pick(
        self,
        candidates: Sequence[Tensor],
        batch_sizes: Sequence[int],
        num_words: int,
        generator: torch.Generator,
    ) -> Tensor:
        """Pick words from all processes' candidates; see the parent class."""
        view = int(torch.randint(2, (), generator=generator))
        own = torch.cat([part[view] for part in candidates])
        pool = torch.cat(all_gather(own))
        first = int(torch.randint(len(pool), (), generator=generator))
        return farthest_points(pool, first, num_words)


def farthest_points(points: Tensor, first: int, number: int) -> Tensor:
    """Pick unit vectors by greedy farthest-point sampling.

    Args:
        points (Tensor): Unit vectors, (M, D).
        first (int): Row of the first point.
        number (int): How many points to sample, at most M.

    Returns:
        Tensor: The points, (number, D), in the order in which they are found.
    """
    found = [points[first]]
    nearest = points @ found[0]  # cosine with the nearest point found
    while len(found) < number:
        # Indexed on the device, so that the host does not wait for the index.
        found.append(points[nearest.argmin(dim=0, keepdim=True)][0])
        nearest = torch.maximum(nearest, points @ found[-1])
    return torch.stack(found)
