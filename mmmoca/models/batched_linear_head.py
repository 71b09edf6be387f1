# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Sequence

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.nn import functional as F

from mmmoca.registry import MODELS

from .precision import at_least_fp32, no_autocast


def true_class_places(logits: Tensor, labels: Tensor) -> Tensor:
    """Rank the true class among the scores of several classifiers.

    Args:
        logits (Tensor): (B, H, C).
        labels (Tensor): Class indices, int64, (B,).

    Returns:
        Tensor: int64, (B, H): 0 if the prediction is right, below 5 if the
        truth is among the best five. Of equal scores the lowest index comes
        first; NaN never wins.
    """
    index = labels[:, None, None].expand(-1, logits.shape[1], 1)
    truth = logits.gather(2, index)
    later = torch.arange(logits.shape[2], device=logits.device) > index
    # Counts beaten classes, so that NaN beats none.
    beaten = (logits < truth) | ((logits == truth) & later)
    return logits.shape[2] - 1 - beaten.sum(dim=2)


@MODELS.register_module()
class BatchedLinearHead(BaseModule):
    """H linear classifiers on the same features, one for each learning rate.

    Linear probing tries many learning rates, as iBOT does (the paper's
    appendix, "Linear ImageNet classification"). Here all classifiers are one
    parameter and one matrix product. The loss is the sum over h of r_h times
    the cross-entropy of classifier h.

    Classifiers share no parameter, so the gradient of classifier h is r_h
    times that of its own cross-entropy. SGD with momentum is linear in the
    gradient. One SGD with rate s therefore takes, for classifier h, the steps
    of an SGD with rate s r_h. This holds for any schedule of s, but not with
    weight decay or with optimisers that normalise the gradient (Adam, LARS).

    The head computes in float32, also under autocast.

    Args:
        in_channels (int): D, width of the features.
        num_classes (int): C, number of classes.
        base_lrs (Sequence[float]): r_h, one for each classifier. The
            optimiser's rate multiplies them.
        init_std (float): Standard deviation of the initial weights; biases
            start at 0. Defaults to 0.01, as in iBOT.

    Raises:
        ValueError: If there is no learning rate, one is not above 0, or
            there are fewer than two classes.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        base_lrs: Sequence[float],
        init_std: float = 0.01,
    ) -> None:
        super().__init__()
        if not base_lrs or any(lr <= 0 for lr in base_lrs):
            raise ValueError(
                'base_lrs must be one or several numbers above 0, such as '
                f'[0.01, 0.1, 1.0], but got {base_lrs!r}'
            )
        if num_classes < 2:
            raise ValueError(
                'a classifier needs at least two classes, but got '
                f'num_classes={num_classes}'
            )
        self.in_channels = in_channels
        self.num_classes = num_classes
        self.base_lrs = tuple(map(float, base_lrs))
        self.init_std = init_std
        heads = len(self.base_lrs)
        self.weight = nn.Parameter(
            torch.empty(heads, num_classes, in_channels)
        )
        self.bias = nn.Parameter(torch.empty(heads, num_classes))
        self.register_buffer(
            'loss_weights', torch.tensor(self.base_lrs), persistent=False
        )
        self.init_weights()

    def init_weights(self) -> None:
        """Draw the weights from N(0, ``init_std``); zero the biases."""
        nn.init.normal_(self.weight, std=self.init_std)
        nn.init.zeros_(self.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Compute the scores of all classifiers.

        Args:
            features (Tensor): (B, D).

        Returns:
            Tensor: Logits, (H, B, C), at least float32.
        """
        return self._logits(features).transpose(0, 1)

    def loss(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Compute the loss, which plain SGD minimises.

        Args:
            features (Tensor): (B, D).
            labels (Tensor): Class indices, int64, (B,).

        Returns:
            dict[str, Tensor]: ``loss``, the weighted sum above, and for the
            log ``best_cross_entropy``, the smallest of all classifiers.
        """
        logits = self._logits(features)  # (B, H, C)
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

        Among equal scores the lowest index comes first. NaN never wins.

        Args:
            features (Tensor): (B, D).
            labels (Tensor): Class indices, int64, (B,).

        Returns:
            Tensor: int64, (B, H): 0 if the prediction is right, below 5 if
            the truth is among the best five.
        """
        return true_class_places(self._logits(features), labels)

    def _logits(self, features: Tensor) -> Tensor:
        """Compute all scores by one product -> (B, H, C)."""
        with no_autocast(features):
            return F.linear(
                at_least_fp32(features),
                self.weight.flatten(0, 1),
                self.bias.flatten(),
            ).unflatten(1, (len(self.base_lrs), self.num_classes))
