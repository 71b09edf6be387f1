# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Sequence

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn

from mmmoca.registry import MODELS


@MODELS.register_module()
class TokenFeatures(BaseModule):
    """Concatenates [CLS] of the last blocks and [AVG], as iBOT's probes do.

    The backbone is mmpretrain's ``VisionTransformer`` with ``out_type='raw'``
    and ``final_norm=True``. Its ``out_indices`` list the blocks, the last one
    included. The backbone normalises only its last output, so this neck
    normalises the others. ``LinearProbe`` replaces the neck's norm with the
    backbone's final norm, as DINO and iBOT do.

    Args:
        num_blocks (int): Number of blocks whose [CLS] is used. iBOT uses 4
            for ViT-S and 1 for larger ViTs. Defaults to 1.
        with_avg (bool): Whether to append [AVG], the mean patch token of the
            last block. Defaults to True.
        embed_dims (int, optional): D, the width of the norm of earlier blocks.
            Needed if ``num_blocks`` is above 1.

    Attributes:
        num_tokens (int): How many tokens are concatenated.

    Raises:
        ValueError: If ``embed_dims`` is missing or ``num_blocks`` is not
            positive. In the forward pass, if the backbone's outputs are not
            the tokens of ``num_blocks`` blocks.
    """

    def __init__(
        self,
        num_blocks: int = 1,
        with_avg: bool = True,
        embed_dims: int | None = None,
    ) -> None:
        super().__init__()
        if num_blocks < 1:
            raise ValueError(f'num_blocks={num_blocks} must be at least 1')
        if num_blocks > 1 and embed_dims is None:
            raise ValueError(
                f'num_blocks={num_blocks} needs embed_dims, the width of the '
                'backbone'
            )
        self.num_blocks = num_blocks
        self.with_avg = with_avg
        self.num_tokens = num_blocks + with_avg
        self.norm = (
            nn.LayerNorm(embed_dims, eps=1e-6) if num_blocks > 1 else None
        )

    def forward(self, feats: Sequence[Tensor]) -> tuple[Tensor]:
        """Concatenate the tokens.

        Args:
            feats (Sequence[Tensor]): [CLS] and patch tokens of each block,
                (B, 1 + L, D) each; those of the last block are normalised.

        Returns:
            tuple[Tensor]: The features, (B, num_tokens * D).
        """
        if len(feats) != self.num_blocks or feats[-1].ndim != 3:
            raise ValueError(
                f'TokenFeatures needs the tokens of {self.num_blocks} '
                f'block(s), but got {[tuple(x.shape) for x in feats]}: set '
                "out_type='raw' and as many out_indices in the backbone"
            )
        tokens = [self.norm(x[:, 0]) for x in feats[:-1]]
        tokens.append(feats[-1][:, 0])
        if self.with_avg:
            tokens.append(feats[-1][:, 1:].mean(dim=1))
        return (torch.cat(tokens, dim=1),)
