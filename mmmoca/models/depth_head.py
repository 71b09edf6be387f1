# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Sequence

import torch
from mmcv.cnn import build_norm_layer
from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.nn import functional as F

from mmmoca.registry import MODELS

from .precision import no_autocast


@MODELS.register_module()
class LinearDepthHead(BaseModule):
    """Batch norm and one linear layer that predict the depth of each patch.

    This is DINOv3's linear probe on NYUv2 (see its ``config-nyu.yaml``). There
    are N depths, evenly spaced from ``min_depth`` to ``max_depth``. For every
    patch, the head predicts a weight for each depth (with AdaBins' linear
    normalisation); the patch's depth is the weighted mean. The head is for
    mmsegmentation's ``DepthEstimator``.

    The loss is AdaBins' with lambda 0.85, over all pixels of the batch whose
    depth is known: the square root of var(g) + 0.15 mean(g)^2, where g is the
    logarithm of the predicted depth minus that of the true depth.

    Args:
        in_channels (int): D, width of the features.
        num_bins (int): N. Defaults to 256.
        min_depth (float): Smallest depth in metres. Defaults to 0.001.
        max_depth (float): Largest depth in metres. Defaults to 10.
        norm_cfg (dict, optional): Config of the norm. Defaults to SyncBN.
        in_index (int): Which of the backbone's maps to use. Defaults to -1,
            the last.
        init_cfg (dict, optional): See :class:`BaseModule`.

    Raises:
        ValueError: If ``min_depth`` is not above 0 and below ``max_depth``, or
            there are fewer than two bins.
    """

    num_classes = out_channels = 1  # mmseg's EncoderDecoder reads both
    align_corners = False

    def __init__(
        self,
        in_channels: int,
        num_bins: int = 256,
        min_depth: float = 0.001,
        max_depth: float = 10.0,
        norm_cfg: dict | None = None,
        in_index: int = -1,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        if not 0 < min_depth < max_depth or num_bins < 2:
            raise ValueError(
                f'min_depth={min_depth} must be above 0 and below max_depth='
                f'{max_depth}, and num_bins={num_bins} must be at least 2'
            )
        self.min_depth, self.max_depth = min_depth, max_depth
        self.in_index = in_index
        norm_cfg = norm_cfg or dict(type='SyncBN')
        self.norm = build_norm_layer(norm_cfg, in_channels)[1]
        self.bins = nn.Conv2d(in_channels, num_bins, 1)
        nn.init.normal_(self.bins.weight, std=0.01)
        nn.init.zeros_(self.bins.bias)
        depths = torch.linspace(min_depth, max_depth, num_bins)
        self.register_buffer('depths', depths, persistent=False)

    def forward(self, feats: Sequence[Tensor]) -> Tensor:
        """Predict the depth of each patch.

        Args:
            feats (Sequence[Tensor]): Maps of the backbone, (B, D, h, w).

        Returns:
            Tensor: Depths in metres, (B, 1, h, w), float32.
        """
        scores = self.bins(self.norm(feats[self.in_index]))
        with no_autocast(scores):
            weights = scores.float().relu() + 0.1  # no weight is 0
            weights = weights / weights.sum(dim=1, keepdim=True)
            return torch.einsum('bnhw,n->bhw', weights, self.depths)[:, None]

    def loss(
        self, feats: Sequence[Tensor], data_samples: list, train_cfg: dict
    ) -> dict[str, Tensor]:
        """Compute the loss on the pixels whose true depth is in the range.

        Args:
            feats (Sequence[Tensor]): Maps of the backbone, (B, D, h, w).
            data_samples (list[SegDataSample]): Samples with ``gt_depth_map``,
                (1, H, W), in metres.
            train_cfg (dict): Not used.

        Returns:
            dict[str, Tensor]: ``loss_depth``, ().
        """
        truth = torch.stack([s.gt_depth_map.data for s in data_samples])
        depth = self._enlarge(self(feats), truth.shape[-2:])
        known = (truth > self.min_depth) & (truth < self.max_depth)
        # The offset bounds the gradient of the logarithm near 0.
        logs = ((x[known] + 0.001).log() for x in (depth, truth.to(depth)))
        differences = torch.sub(*logs)
        if len(differences) < 2:
            return dict(loss_depth=0 * depth.sum())
        spread = differences.var() + 0.15 * differences.mean().square()
        return dict(loss_depth=spread.clamp(min=1e-12).sqrt())

    def predict(
        self, feats: Sequence[Tensor], metainfos: list[dict], test_cfg: dict
    ) -> Tensor:
        """Predict the depth of each pixel.

        Args:
            feats (Sequence[Tensor]): Maps of the backbone, (B, D, h, w).
            metainfos (list[dict]): Their ``img_shape`` is (H, W).
            test_cfg (dict): Not used.

        Returns:
            Tensor: Depths in metres, (B, 1, H, W).
        """
        return self._enlarge(self(feats), metainfos[0]['img_shape'])

    def _enlarge(self, depth: Tensor, size: Sequence[int]) -> Tensor:
        return F.interpolate(depth, tuple(size)[:2], mode='bilinear')
