# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Sequence
from functools import partial

from mmcv.cnn import build_norm_layer
from mmengine.model import BaseModule
from torch import Tensor, nn

from mmmoca.registry import MODELS

__all__ = ['ViTFeaturePyramid']


@MODELS.register_module()
class ViTFeaturePyramid(BaseModule):
    """Four scales from a plain ViT, whose maps all have one.

    The pyramid of iBOT's COCO recipe, which the paper follows (Table 7): two
    transposed convolutions with a norm and a GELU between them, one
    transposed convolution, nothing, and max-pooling give 4, 2, 1 and 1/2
    times the ViT's resolution: strides 4, 8, 16 and 32 of patches of 16
    pixels. The scales read four layers of the ViT, or all of them its last
    map, as in ViTDet's simple feature pyramid (arXiv:2203.16527).

    Args:
        in_channels (int): Channels of each map, which stay as they are.
        norm_cfg (dict, optional): Norm between the two transposed
            convolutions. Defaults to ``dict(type='SyncBN')``.
        scales (Sequence[float]): Some or all of 4, 2, 1 and 0.5: times the
            resolution of the ViT. Defaults to all of them.
        init_cfg (dict | List[dict], optional): See :class:`BaseModule`.
            Defaults to None, PyTorch's own initialisation.

    Raises:
        ValueError: If there is another scale.
    """

    def __init__(
        self,
        in_channels: int,
        norm_cfg: dict | None = None,
        scales: Sequence[float] = (4, 2, 1, 0.5),
        init_cfg: dict | list[dict] | None = None,
    ) -> None:
        super().__init__(init_cfg)

        def twice() -> nn.Module:
            return nn.ConvTranspose2d(in_channels, in_channels, 2, stride=2)

        def four_times() -> nn.Module:
            norm_type = norm_cfg or dict(type='SyncBN')
            norm = build_norm_layer(norm_type, in_channels)[1]
            return nn.Sequential(twice(), norm, nn.GELU(), twice())

        known = {
            4: four_times,
            2: twice,
            1: nn.Identity,
            0.5: partial(nn.MaxPool2d, 2),
        }
        if not set(scales) <= set(known):
            raise ValueError(
                f'scales={scales} has others than {tuple(known)}, which '
                'ViTFeaturePyramid can make'
            )
        self.scales = nn.ModuleList(known[scale]() for scale in scales)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Scale the maps.

        Args:
            inputs (Sequence[Tensor]): A map for each scale, or one for all,
                (B, C, H, W) each, from the shallowest layer to the deepest.

        Returns:
            tuple[Tensor, ...]: A map for each scale; of all four scales
            (B, C, 4H, 4W), (B, C, 2H, 2W), (B, C, H, W) and
            (B, C, H // 2, W // 2).

        Raises:
            ValueError: If there is another number of maps.
        """
        if len(inputs) == 1:
            inputs = list(inputs) * len(self.scales)
        if len(inputs) != len(self.scales):
            raise ValueError(
                f'ViTFeaturePyramid takes {len(self.scales)} maps of the '
                f'backbone, or its last one for all scales, but got '
                f'{len(inputs)}: write out_indices=[3, 5, 7, 11] (ViT-B) or '
                'out_indices=-1'
            )
        return tuple(
            scale(feature) for scale, feature in zip(self.scales, inputs)
        )
