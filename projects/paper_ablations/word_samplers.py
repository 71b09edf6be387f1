# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Other choices of the codebook's new words than a random token."""

from collections.abc import Sequence

import torch
from mmengine.dist import all_gather
from torch import Tensor

from mmmoca.models import RandomTokenSampler
from mmmoca.registry import TASK_UTILS


@TASK_UTILS.register_module()
class AverageTokenSampler(RandomTokenSampler):
    """A new word is the mean of an image's inner tokens, normalised."""

    def describe(self, tokens: Tensor, inner: Tensor) -> Tensor:
        """Average the inner tokens of each image.

        Args:
            tokens (Tensor): (2, n, L, D).
            inner (Tensor): (n_inner, ).

        Returns:
            Tensor: (2, n, D).
        """
        return tokens[:, :, inner].mean(dim=2)


@TASK_UTILS.register_module()
class FarthestPointSampler(RandomTokenSampler):
    """New words lie as far from each other as the global batch allows.

    Paper, appendix A.2, which gives no details. Here each image of the global
    batch offers one random inner token. The first word is a random one of
    them. Each next word is the token whose nearest chosen word is farthest.
    """

    def draw(self, tokens: Tensor, inner: Tensor, num_words: int) -> Tensor:
        """Draw a candidate from every image of this process.

        Args:
            tokens (Tensor): Teacher tokens of both views, (2, B, L, D).
            inner (Tensor): Indices of the patches to draw from, (n_inner, ).
            num_words (int): K_new.

        Returns:
            Tensor: (2, B, D).
        """
        return super().draw(tokens, inner, tokens.shape[1])

    def pick(
        self,
        candidates: Sequence[Tensor],
        batch_sizes: Sequence[int],
        num_words: int,
        generator: torch.Generator,
    ) -> Tensor:
        """Pick words from all processes' candidates; see the parent's."""
        view = int(torch.randint(2, (), generator=generator))
        own = torch.cat([part[view] for part in candidates])
        pool = torch.cat(all_gather(own))
        first = int(torch.randint(len(pool), (), generator=generator))
        return farthest_points(pool, first, num_words)


def farthest_points(points: Tensor, first: int, number: int) -> Tensor:
    """Sample unit vectors by greedy farthest points.

    Args:
        points (Tensor): (M, D).
        first (int): Row of the first.
        number (int): How many, at most M.

    Returns:
        Tensor: The points, (number, D), in the order in which they are found.
    """
    found = [points[first]]
    nearest = points @ found[0]  # cosine of each to the nearest found
    while len(found) < number:
        # On the device: the host does not wait to know which it is.
        found.append(points[nearest.argmin(dim=0, keepdim=True)][0])
        nearest = torch.maximum(nearest, points @ found[-1])
    return torch.stack(found)
