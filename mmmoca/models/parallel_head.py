# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from abc import abstractmethod
from collections.abc import Sequence

import torch
from mmengine.model import BaseModule
from torch import Tensor
from torch.nn import functional as F

from .precision import no_autocast


class ParallelHead(BaseModule):
    """H classifiers that train side by side on the same frozen features.

    A subclass implements :meth:`forward`. It may set ``loss_weights``, the
    weight of each classifier's loss.

    Args:
        in_channels (int): D, width of the features.
        num_classes (int): C, number of classes.
        base_lrs (Sequence[float]): The learning rate of each classifier for a
            batch of 256. :class:`~mmmoca.evaluation.LinearProbeAccuracy`
            reports them.

    Raises:
        ValueError: If there is no learning rate, a learning rate is not
            above 0, or there are fewer than two classes.
    """

    def __init__(
        self, in_channels: int, num_classes: int, base_lrs: Sequence[float]
    ) -> None:
        super().__init__()
        if not base_lrs or min(base_lrs) <= 0 or num_classes < 2:
            raise ValueError(
                f'base_lrs={base_lrs!r} must be one or several numbers above '
                f'0, and num_classes={num_classes} at least 2'
            )
        self.in_channels = in_channels
        self.num_classes = num_classes
        self.base_lrs = tuple(map(float, base_lrs))
        self.register_buffer(
            'loss_weights', torch.ones(len(base_lrs)), persistent=False
        )

    @abstractmethod
    def forward(self, features: Tensor) -> Tensor:
        """Compute the scores of all classifiers -> (B, H, C)."""

    def loss(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Sum the weighted cross-entropies of all classifiers.

        Args:
            features (Tensor): (B, D) or, for patches, (B, D, h, w).
            labels (Tensor): Class indices, int64, (B,).

        Returns:
            dict[str, Tensor]: ``loss`` and, for the log,
            ``best_cross_entropy``, the lowest of the cross-entropies.
        """
        logits = self(features)  # (B, H, C)
        with no_autocast(logits):
            entropies = F.cross_entropy(
                logits.flatten(0, 1),
                labels.repeat_interleave(len(self.base_lrs)),
                reduction='none',
            ).unflatten(0, (-1, len(self.base_lrs)))
            entropies = entropies.mean(dim=0)  # (H,)
            return dict(
                loss=(self.loss_weights * entropies).sum(),
                best_cross_entropy=entropies.detach().min(),
            )

    @torch.no_grad()
    def places(self, features: Tensor, labels: Tensor) -> Tensor:
        """Rank the true class among each classifier's scores.

        Args:
            features (Tensor): (B, D) or, for patches, (B, D, h, w).
            labels (Tensor): Class indices, int64, (B,).

        Returns:
            Tensor: Rank of the true class, int64, (B, H): 0 if the prediction
            is right, below 5 if the true class is among the best five. Among
            equal scores, the lowest index comes first. The true class does
            not outrank another class if either score is NaN.
        """
        logits = self(features)
        index = labels[:, None, None].expand(-1, logits.shape[1], 1)
        truth = logits.gather(2, index)
        later = torch.arange(self.num_classes, device=logits.device) > index
        # Classes that rank below the true one. Comparisons with NaN are False.
        beaten = (logits < truth) | ((logits == truth) & later)
        return self.num_classes - 1 - beaten.sum(dim=2)
