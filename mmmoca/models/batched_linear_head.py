# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmmoca.registry import MODELS

from .parallel_head import ParallelHead
from .precision import at_least_fp32, no_autocast


@MODELS.register_module()
class BatchedLinearHead(ParallelHead):
    """H linear classifiers on the same features, one for each learning rate.

    Linear probing tries many learning rates, as iBOT does (the paper's
    appendix, "Linear ImageNet classification"). Here one tensor holds the
    weights of all classifiers, and one matrix product computes all logits. The
    loss is the sum over h of r_h times the cross-entropy of classifier h,
    where r_h is its entry in ``base_lrs``.

    Classifiers share no weight, so the gradient of classifier h is r_h times
    that of its own cross-entropy. SGD with momentum is linear in the
    gradient. A single SGD with rate s therefore updates classifier h as an SGD
    with rate s r_h would. This holds for any schedule of s, but not with
    weight decay or with optimisers that normalise the gradient (Adam, LARS).

    The head computes in float32 even under autocast.

    Args:
        in_channels (int): D, width of the features.
        num_classes (int): C, number of classes.
        base_lrs (Sequence[float]): r_h of each classifier. Its learning rate
            is r_h times the optimiser's rate.

    Raises:
        ValueError: See :class:`ParallelHead`.
    """

    def __init__(
        self, in_channels: int, num_classes: int, base_lrs: Sequence[float]
    ) -> None:
        super().__init__(in_channels, num_classes, base_lrs)
        heads = len(self.base_lrs)
        self.loss_weights = torch.tensor(self.base_lrs)
        self.weight = nn.Parameter(
            torch.empty(heads, num_classes, in_channels)
        )
        self.bias = nn.Parameter(torch.empty(heads, num_classes))
        self.init_weights()

    def init_weights(self) -> None:
        """Draw weights from N(0, 0.01^2), as iBOT does; zero the biases."""
        nn.init.normal_(self.weight, std=0.01)
        nn.init.zeros_(self.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Compute the scores of all classifiers with one matrix product.

        Args:
            features (Tensor): Features of the images, (B, D).

        Returns:
            Tensor: Logits, (B, H, C), at least float32.
        """
        with no_autocast(features):
            return F.linear(
                at_least_fp32(features),
                self.weight.flatten(0, 1),
                self.bias.flatten(),
            ).unflatten(1, self.bias.shape)
