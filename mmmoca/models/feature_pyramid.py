# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Callable, Sequence
from functools import partial

from mmcv.cnn import build_norm_layer
from mmengine.model import BaseModule
from torch import Tensor, nn

from mmmoca.registry import MODELS


@MODELS.register_module()
class ViTFeaturePyramid(BaseModule):
    """Makes maps of several strides from a plain ViT, which has one stride.

    This is the pyramid of iBOT's COCO recipe, which the paper follows (Table
    7). It scales a map by the factor patch size / stride. The operation
    depends on this factor:

    - 4: two transposed convolutions with a norm and a GELU between them;
    - 2: one transposed convolution;
    - 1: nothing;
    - 1/2 and 1/4: max-pooling.

    Each stride reads its own layer of the ViT. If there is only one map, all
    strides read it, as in ViTDet's simple feature pyramid (arXiv:2203.16527).

    Args:
        in_channels (int): Channels of each input map and each output map.
        norm_cfg (dict, optional): Norm between the two transposed
            convolutions. Defaults to ``dict(type='SyncBN')``.
        strides (Sequence[float]): Strides of the maps in pixels, each 1/4,
            1/2, 1, 2 or 4 times the patch size. Defaults to (4, 8, 16, 32).
        patch_size (int): Patch size of the backbone in pixels.
            :func:`mmmoca.models.detector` fills it in. Defaults to 16.
        init_cfg (dict | list[dict], optional): See :class:`BaseModule`.
            Defaults to None, PyTorch's own initialisation.

    Raises:
        ValueError: If a stride is not 1/4, 1/2, 1, 2 or 4 times the patch
            size.
    """

    def __init__(
        self,
        in_channels: int,
        norm_cfg: dict | None = None,
        strides: Sequence[float] = (4, 8, 16, 32),
        patch_size: int = 16,
        init_cfg: dict | list[dict] | None = None,
    ) -> None:
        super().__init__(init_cfg)

        def twice() -> nn.Module:
            return nn.ConvTranspose2d(in_channels, in_channels, 2, stride=2)

        def four_times() -> nn.Module:
            norm_type = norm_cfg or dict(type='SyncBN')
            norm = build_norm_layer(norm_type, in_channels)[1]
            return nn.Sequential(twice(), norm, nn.GELU(), twice())

        known: dict[float, Callable[[], nn.Module]] = {
            4: four_times,
            2: twice,
            1: nn.Identity,
            0.5: partial(nn.MaxPool2d, 2),
            0.25: partial(nn.MaxPool2d, 4),
        }
        scales = [patch_size / stride for stride in strides]
        if not set(scales) <= set(known):
            possible = [patch_size / scale for scale in known]
            raise ValueError(
                f'ViTFeaturePyramid makes maps of strides {possible} from '
                f'patches of {patch_size} pixels, not {list(strides)}: choose '
                'strides from the first list, and set the same in the heads'
            )
        self.scales = nn.ModuleList(known[scale]() for scale in scales)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Scale the maps.

        Args:
            inputs (Sequence[Tensor]): One map for each stride, or a single map
                for all, (B, C, H, W) each, from the shallowest layer to the
                deepest.

        Returns:
            tuple[Tensor, ...]: A map for each stride, (B, C, s H, s W) rounded
            down, with s the patch size / stride.

        Raises:
            ValueError: If the inputs are not maps, or there is neither a
                single map nor one for each stride.
        """
        if inputs[0].dim() != 4:
            raise ValueError(
                'ViTFeaturePyramid needs maps from the backbone: write '
                "model.backbone.out_type='featmap'"
            )
        if len(inputs) == 1:
            inputs = list(inputs) * len(self.scales)
        if len(inputs) != len(self.scales):
            raise ValueError(
                f'ViTFeaturePyramid needs {len(self.scales)} maps from the '
                f'backbone, or only its last one, but got {len(inputs)}: '
                f'write {len(self.scales)} numbers, or -1, in '
                'model.backbone.out_indices'
            )
        return tuple(
            scale(feature) for scale, feature in zip(self.scales, inputs)
        )
