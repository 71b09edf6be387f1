# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import torch
from mmpretrain.models.utils.attention import (
    scaled_dot_product_attention_pyimpl,
)
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ['attention', 'use_fastest_attention']


def attention(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0
) -> Tensor:
    """Scaled dot-product attention by whatever is fastest on the device.

    That is PyTorch's own choice but for training in bfloat16 on CPUs: there
    the backward pass of its fused kernel takes up to five times as long as
    plain matrix products, and its unfused one computes in float32.

    Args:
        query (Tensor): (B, heads, N, d).
        key (Tensor): (B, heads, N, d).
        value (Tensor): (B, heads, N, d).
        dropout_p (float): Dropout of the attention weights. Defaults to 0.

    Returns:
        Tensor: (B, heads, N, d).
    """
    function = F.scaled_dot_product_attention
    in_bf16 = query.device.type == 'cpu' and query.dtype == torch.bfloat16
    if in_bf16 and query.requires_grad:
        function = scaled_dot_product_attention_pyimpl
    return function(query, key, value, dropout_p=dropout_p)


def use_fastest_attention(layers: nn.ModuleList) -> None:
    """Have mmpretrain's transformer layers call :func:`attention`.

    Args:
        layers (nn.ModuleList): Of ``TransformerEncoderLayer``.
    """
    for layer in layers:
        layer.attn.scaled_dot_product_attention = attention
