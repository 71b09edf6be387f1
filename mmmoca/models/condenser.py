# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import torch
from mmengine.model import BaseModule
from mmpretrain.models.backbones.vision_transformer import (
    TransformerEncoderLayer,
)
from torch import Tensor, nn

from mmmoca.registry import MODELS

from .initialization import init_transformer
from .masking import Mask
from .position_encoding import sincos_positions_2d
from .transformer import EncoderLayer
from .vit import EncodedTokens


@MODELS.register_module()
class CondenserNeck(BaseModule):
    """Decoder that predicts patches through a bottleneck.

    Paper, section 3.3 and appendix B. The decoder gets the patch tokens after
    layer ``tap_layer`` of :class:`MOCAViT`, and one image embedding.
    Information from later layers can reach the decoder only through that
    embedding.

    Args:
        in_channels (int): D, width of the encoder.
        patch_resolution (tuple[int, int]): Patch rows and columns (H, W).
        embed_dims (int): d, width of the decoder. Defaults to 512.
        depth (int): Number of transformer blocks. Defaults to 2.
        num_heads (int): Number of attention heads. Defaults to 16.
        mlp_ratio (float): Hidden width of an MLP divided by the token width.
            Defaults to 4.
        condenser (bool): False gives the paper's plain decoder (section
            3.2), which reads [CLS] and the patch tokens of the encoder's last
            layer. Defaults to True.
        lean_mlp (bool): See :class:`MOCAViT`. Defaults to True.

    Raises:
        ValueError: If ``embed_dims`` is not a multiple of ``num_heads``, or
            ``depth`` is below 1.
    """

    def __init__(
        self,
        in_channels: int,
        patch_resolution: tuple[int, int],
        embed_dims: int = 512,
        depth: int = 2,
        num_heads: int = 16,
        mlp_ratio: float = 4.0,
        condenser: bool = True,
        lean_mlp: bool = True,
    ) -> None:
        super().__init__()
        if depth < 1:
            raise ValueError(f'depth must be 1 or more, got {depth}')
        if embed_dims % num_heads:
            raise ValueError(
                f'decoder width embed_dims={embed_dims} must be a multiple '
                f'of num_heads={num_heads}'
            )
        self.embed_dims = embed_dims
        self.condenser = condenser
        norm_cfg = dict(type='LN', eps=1e-6)
        if condenser:
            self.input_norm = nn.LayerNorm(in_channels, eps=1e-6)
        self.projection = nn.Linear(in_channels, embed_dims)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, embed_dims))
        self.layers = nn.ModuleList(
            EncoderLayer(
                TransformerEncoderLayer(
                    embed_dims,
                    num_heads,
                    int(mlp_ratio * embed_dims),
                    norm_cfg=norm_cfg,
                ),
                lean_mlp,
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(embed_dims, eps=1e-6)
        self.register_buffer(
            'positions',
            sincos_positions_2d(patch_resolution, embed_dims),
            persistent=False,
        )

    def init_weights(self) -> None:
        """Initialise as MAE does."""
        super().init_weights()
        init_transformer(self)
        nn.init.normal_(self.mask_token, std=0.02)

    def forward(
        self, encoded: EncodedTokens, image_embedding: Tensor, mask: Mask
    ) -> Tensor:
        """Decode visible and predicted patches.

        Args:
            encoded (EncodedTokens): Student tokens of the visible patches.
            image_embedding (Tensor): [AVG] (or [CLS]), (N, D).
            mask (Mask): Patch indices of the round.

        Returns:
            Tensor: Decoder tokens in the order of ``mask.decoded``,
            (N, n_visible + n_predicted, d).
        """
        if self.condenser:
            first, patches = image_embedding, self.input_norm(encoded.tap)
        else:
            first, patches = encoded.cls, encoded.patches
        x = self.projection(torch.cat((first[:, None], patches), dim=1))
        mask_tokens = self.mask_token.expand(*mask.predicted.shape, -1)
        x = torch.cat((x, mask_tokens.to(x)), dim=1)
        # The first token, [AVG] or [CLS], has no position.
        positions = self.positions[mask.decoded]  # (N, n, d)
        x = torch.cat((x[:, :1], x[:, 1:] + positions), dim=1)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)[:, 1:]
