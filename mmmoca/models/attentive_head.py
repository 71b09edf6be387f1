# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Sequence

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.nn import functional as F

from mmmoca.registry import MODELS

from .batched_linear_head import true_class_places


class AttentiveClassifier(nn.Module):
    """Attention of one learned query over the patches, and a linear layer.

    The classifier of CAPI and AIM: multi-head cross-attention without a
    projection of the output. Each patch would need its key and its value, D^2
    products each. The same result takes fewer here: a key's product with the
    query is that of the patch with the query times the key's weights, and the
    mean of values is the value of the mean.

    Args:
        in_channels (int): D, width of the patches, a multiple of 64.
        num_classes (int): C, number of classes.
    """

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.num_heads = in_channels // 64
        self.query = nn.Parameter(torch.empty(in_channels))
        self.key = nn.Linear(in_channels, in_channels)
        self.value = nn.Linear(in_channels, in_channels)
        self.fc = nn.Linear(in_channels, num_classes)
        nn.init.trunc_normal_(self.query, std=0.02)
        for layer in (self.key, self.value, self.fc):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, patches: Tensor) -> Tensor:
        """Classify images.

        Args:
            patches (Tensor): (B, L, D).

        Returns:
            Tensor: Logits, (B, C).
        """
        heads = self.num_heads
        query = self.query.unflatten(0, (heads, 64))
        keys = self.key.weight.unflatten(0, (heads, 64))
        # The key's bias adds the same to all scores of a head.
        asked = torch.einsum('hk,hkd->hd', query, keys) / 64**0.5
        scores = torch.einsum('bld,hd->bhl', patches, asked)
        pooled = scores.softmax(dim=-1) @ patches  # (B, h, D)
        values = self.value.weight.unflatten(0, (heads, 64))
        attended = torch.einsum('bhd,hvd->bhv', pooled, values).flatten(1)
        return self.fc(attended + self.value.bias)


@MODELS.register_module()
class AttentiveHead(BaseModule):
    """Attentive classifiers, one for each learning rate and weight decay.

    They share the frozen features of a pass. The optimiser's groups give each
    its rate: ``paramwise_cfg.custom_keys`` of the config name
    ``classifiers.0.`` and so on. Goes with
    :class:`~mmmoca.models.LinearProbe` and
    :class:`~mmmoca.evaluation.LinearProbeAccuracy`.

    Args:
        in_channels (int): D, width of the patches, a multiple of 64.
        num_classes (int): C, number of classes.
        base_lrs (Sequence[float]): The learning rate of each classifier for
            a batch of 256, which the metric reports.
        init_cfg (dict, optional): See :class:`BaseModule`.

    Raises:
        ValueError: If there is no rate, the width is no multiple of 64, or
            there are fewer than two classes.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        base_lrs: Sequence[float],
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        if not base_lrs or in_channels % 64 or num_classes < 2:
            raise ValueError(
                f'base_lrs={base_lrs!r} must have a rate at least, '
                f'in_channels={in_channels} must be a multiple of 64, and '
                f'num_classes={num_classes} at least 2'
            )
        self.in_channels = in_channels
        self.num_classes = num_classes
        self.base_lrs = tuple(map(float, base_lrs))
        self.classifiers = nn.ModuleList(
            AttentiveClassifier(in_channels, num_classes) for _ in base_lrs
        )

    def forward(self, patches: Tensor) -> Tensor:
        """Compute the scores of all classifiers.

        Args:
            patches (Tensor): Patch features as a map, (B, D, h, w).

        Returns:
            Tensor: Logits, (B, H, C), float32.
        """
        patches = patches.flatten(2).mT  # -> (B, L, D)
        logits = [classify(patches) for classify in self.classifiers]
        return torch.stack(logits, dim=1).float()

    def loss(self, patches: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Sum the cross-entropies of all classifiers, which share nothing.

        Args:
            patches (Tensor): (B, D, h, w).
            labels (Tensor): Class indices, int64, (B,).

        Returns:
            dict[str, Tensor]: ``loss`` and, for the log,
            ``best_cross_entropy``, the smallest of all classifiers.
        """
        logits = self(patches).transpose(1, 2)  # (B, C, H)
        truth = labels[:, None].expand(-1, logits.shape[2])
        entropies = F.cross_entropy(logits, truth, reduction='none').mean(0)
        return dict(
            loss=entropies.sum(),
            best_cross_entropy=entropies.detach().min(),
        )

    @torch.no_grad()
    def places(self, patches: Tensor, labels: Tensor) -> Tensor:
        """Rank the true class among each classifier's scores.

        Args:
            patches (Tensor): (B, D, h, w).
            labels (Tensor): Class indices, int64, (B,).

        Returns:
            Tensor: See :meth:`BatchedLinearHead.places`, int64, (B, H).
        """
        return true_class_places(self(patches), labels)
