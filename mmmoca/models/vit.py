# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from typing import NamedTuple

import torch
from mmcv.cnn.bricks import DropPath
from mmengine.model import ModuleList, PretrainedInit
from mmpretrain.models.backbones import VisionTransformer
from mmpretrain.models.utils import resize_pos_embed
from torch import Tensor, nn
from torch.nn import functional as F

from mmmoca.registry import MODELS

from .initialization import init_transformer
from .position_encoding import sincos_positions_2d
from .transformer import EncoderLayer


class EncodedTokens(NamedTuple):
    """The outputs of an encoder that MOCA uses.

    Attributes:
        cls (Tensor): [CLS] after the final norm, (B, D).
        patches (Tensor): Patch tokens after the final norm, (B, n, D). n is
            L, or the number of visible patches.
        tap (Tensor, optional): Patch tokens after layer l, before any norm,
            (B, n, D).
    """

    cls: Tensor
    patches: Tensor
    tap: Tensor | None

    @property
    def avg(self) -> Tensor:
        """Tensor: [AVG], the mean patch token, (B, D)."""
        return self.patches.mean(dim=1)


@MODELS.register_module()
class MOCAViT(VisionTransformer):
    """Vision Transformer that encodes visible patches and taps a layer.

    It is mmpretrain's :class:`VisionTransformer` (same arguments, parameter
    names and ``forward``) with fixed sine-cosine positions and MAE's
    initialisation. ``mmpretrain.VisionTransformer`` loads its weights for
    every downstream task.

    Args:
        tap_layer (int, optional): l, the layer (counted from 1) whose
            output feeds the condenser decoder (paper, section 3.3 and Table
            2f). Defaults to None, no tap.
        lean_mlp (bool): Whether to keep one hidden tensor of each MLP for
            the backward pass instead of two. Costs one GELU. Defaults to
            True.
        **kwargs: Arguments of :class:`VisionTransformer`.

    Raises:
        ValueError: If ``tap_layer`` is outside the depth, the image is not a
            multiple of the patch, or [CLS] or the final norm is switched off.
    """

    def __init__(
        self,
        *args,
        tap_layer: int | None = None,
        lean_mlp: bool = True,
        **kwargs,
    ) -> None:
        super().__init__(*args, **kwargs)
        if self.cls_token is None or not self.final_norm:
            raise ValueError(
                'MOCAViT needs with_cls_token=True and final_norm=True'
            )
        if tap_layer is not None and not 1 <= tap_layer <= self.num_layers:
            raise ValueError(
                f'tap_layer={tap_layer} is outside the {self.num_layers} '
                f'layers of this encoder; choose 1 to {self.num_layers}'
            )
        self.tap_layer = tap_layer
        self.patch_size: tuple[int, int] = self.patch_embed.projection.stride
        self.check_image_size(self.img_size)
        self.layers = ModuleList(
            EncoderLayer(layer, lean_mlp) for layer in self.layers
        )
        for module in self.modules():
            if isinstance(module, DropPath):
                # A number of NumPy's breaks the graph of torch.compile.
                module.drop_prob = float(module.drop_prob)

        self.pos_embed.requires_grad = False
        positions = sincos_positions_2d(self.patch_resolution, self.embed_dims)
        self.pos_embed.data[:, 1:] = positions

    def check_image_size(self, size: tuple[int, int]) -> None:
        """Raise a ValueError if (H, W) is not a multiple of the patch."""
        if any(side % patch for side, patch in zip(size, self.patch_size)):
            raise ValueError(
                f'image size {tuple(size)} is not a multiple of the patch '
                f'size {tuple(self.patch_size)}; change img_size (and the '
                'crop of the pipeline) or patch_size'
            )

    def init_weights(self) -> None:
        """Initialise as MAE does. Positions keep their values."""
        inits = self.init_cfg or []
        inits = [inits] if isinstance(inits, dict) else inits
        if any(i['type'] in ('Pretrained', PretrainedInit) for i in inits):
            # mmpretrain's own method overwrites what a list has loaded.
            super(VisionTransformer, self).init_weights()
            return
        positions = self.pos_embed.detach().clone()
        super().init_weights()
        init_transformer(self)
        self.pos_embed.data.copy_(positions)
        nn.init.normal_(self.cls_token, std=0.02)

    def encode(
        self, images: Tensor, visible: Tensor | None = None
    ) -> EncodedTokens:
        """Encode all patches, or only the visible ones.

        Args:
            images (Tensor): (B, C, H, W).
            visible (Tensor, optional): Patch indices, (B, n). Defaults to
                None, all L patches.

        Returns:
            EncodedTokens: [CLS] and the n patch tokens of each image.

        Raises:
            ValueError: If the images are not a multiple of the patch.
        """
        self.check_image_size(images.shape[-2:])
        x = self._embed_patches(images, visible)  # (B, n, D)
        cls = self.cls_token + self.pos_embed[:, :1]
        x = torch.cat((cls.expand(len(x), -1, -1), x), dim=1)
        x = self.pre_norm(self.drop_after_pos(x))
        tap = None
        for index, layer in enumerate(self.layers, start=1):
            x = layer(x)
            if index == self.tap_layer:
                tap = x[:, 1:]
        x = self.ln1(x)
        return EncodedTokens(x[:, 0], x[:, 1:], tap)

    def _embed_patches(self, images: Tensor, visible: Tensor | None) -> Tensor:
        """Project patches and add their positions -> (B, n, D)."""
        grid = tuple(
            side // patch
            for side, patch in zip(images.shape[-2:], self.patch_size)
        )
        positions = resize_pos_embed(
            self.pos_embed,
            self.patch_resolution,
            grid,
            mode=self.interpolate_mode,
        )[:, 1:]  # (1, L, D)
        if visible is None:
            return self.patch_embed(images)[0] + positions
        patches = images.unflatten(3, (grid[1], self.patch_size[1])).unflatten(
            2, (grid[0], self.patch_size[0])
        )  # (B, C, rows, p, columns, q)
        patches = patches.permute(0, 2, 4, 1, 3, 5)
        sample = torch.arange(len(images), device=images.device)[:, None]
        rows, columns = visible // grid[1], visible % grid[1]
        patches = patches[sample, rows, columns]  # -> (B, n, C, p, q)
        projection = self.patch_embed.projection
        tokens = F.linear(
            patches.flatten(2), projection.weight.flatten(1), projection.bias
        )
        return tokens + positions[0, visible]
