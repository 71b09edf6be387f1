# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from mmmoca.registry import MODELS

from .parallel_head import ParallelHead


class AttentiveClassifier(nn.Module):
    """Cross-attention of one learned query to the patches, then a classifier.

    The classifier of CAPI and AIM: multi-head cross-attention without an
    output projection, then a linear layer. Computing the key and the value of
    every patch would take D^2 multiplications each. The same result takes
    fewer here: :meth:`questions` multiplies the query by the key weights once
    for all patches, and the value layer is applied to the weighted mean of the
    patches instead of to each patch.

    Args:
        in_channels (int): D, width of the patches, a multiple of 64.
        num_classes (int): C, number of classes.
    """

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.num_heads = in_channels // 64
        self.query = nn.Parameter(torch.empty(in_channels))
        # A bias of the keys would add the same number to all scores of a head.
        self.key = nn.Linear(in_channels, in_channels, bias=False)
        self.value = nn.Linear(in_channels, in_channels)
        self.fc = nn.Linear(in_channels, num_classes)
        nn.init.trunc_normal_(self.query, std=0.02)
        for layer in (self.key, self.value, self.fc):
            nn.init.trunc_normal_(layer.weight, std=0.02)
        for layer in (self.value, self.fc):
            nn.init.zeros_(layer.bias)

    def questions(self) -> Tensor:
        """Return each head's scaled query times its key weights, (h, D).

        The product of a row with a patch is the attention score of the patch.
        """
        query = self.query.unflatten(0, (self.num_heads, 64))
        keys = self.key.weight.unflatten(0, (self.num_heads, 64))
        return torch.einsum('hk,hkd->hd', query, keys) / 64**0.5

    def forward(self, pooled: Tensor) -> Tensor:
        """Classify images.

        Args:
            pooled (Tensor): The mean of the patches for each head, weighted
                by its attention, (B, h, D).

        Returns:
            Tensor: Logits, (B, C).
        """
        values = self.value.weight.unflatten(0, (self.num_heads, 64))
        attended = torch.einsum('bhd,hvd->bhv', pooled, values).flatten(1)
        return self.fc(attended + self.value.bias)


@MODELS.register_module()
class AttentiveHead(ParallelHead):
    """Attentive classifiers, one for each pair of learning rate and decay.

    Each classifier is a parameter group of the optimiser with its own learning
    rate and weight decay: ``paramwise_cfg.custom_keys`` in the config names
    ``classifiers.0.`` and so on. The head is used with
    :class:`~mmmoca.models.LinearProbe` and
    :class:`~mmmoca.evaluation.LinearProbeAccuracy`.

    Args:
        in_channels (int): D, width of the patches, a multiple of 64.
        num_classes (int): C, number of classes.
        base_lrs (Sequence[float]): The learning rate of each classifier for
            a batch of 256. The metric reports these numbers; they do not set
            the optimiser's rates.

    Raises:
        ValueError: If the width is not a multiple of 64. Also see
            :class:`ParallelHead`.
    """

    def __init__(
        self, in_channels: int, num_classes: int, base_lrs: Sequence[float]
    ) -> None:
        super().__init__(in_channels, num_classes, base_lrs)
        if in_channels % 64:
            raise ValueError(
                f'in_channels={in_channels} must be a multiple of 64, the '
                'width of an attention head'
            )
        self.classifiers = nn.ModuleList(
            AttentiveClassifier(in_channels, num_classes) for _ in base_lrs
        )

    def forward(self, patches: Tensor) -> Tensor:
        """Compute the scores of all classifiers.

        Args:
            patches (Tensor): Patch features as a map, (B, D, h, w).

        Returns:
            Tensor: Logits of H classifiers, (B, H, C), float32.
        """
        # All classifiers run at once. One by one, each would read all patches
        # twice.
        patches = patches.flatten(2).mT.contiguous()  # -> (B, L, D)
        parts = cast(list[AttentiveClassifier], self.classifiers)
        asked = torch.cat([part.questions() for part in parts])
        weights = (patches @ asked.T).mT.softmax(dim=-1)  # (B, H h, L)
        pooled = (weights @ patches).unflatten(1, (len(parts), -1))
        logits = [part(x) for part, x in zip(parts, pooled.unbind(1))]
        return torch.stack(logits, dim=1).float()
