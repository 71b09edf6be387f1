# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""mmpretrain's transformer layers, faster and with less memory."""

from collections.abc import Sequence

import torch
from mmcv.cnn.bricks import transformer as mmcv
from mmpretrain.models.backbones import vision_transformer as mmpretrain
from mmpretrain.models.utils.attention import (
    MultiheadAttention,
    scaled_dot_product_attention_pyimpl,
)
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .rotary import rotate


def attention(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0
) -> Tensor:
    """Compute scaled dot-product attention in the fastest way.

    PyTorch chooses the kernel. Only training in bfloat16 on CPUs uses plain
    matrix products instead: there the backward pass of PyTorch's fused kernel
    takes up to five times as long, and its unfused kernel computes in float32.

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


def join_rounds(tokens: Sequence[Tensor]) -> Tensor:
    """Put the tokens of all rounds side by side; one round needs no copy.

    Args:
        tokens (Sequence[Tensor]): Tokens of each round, (B, n, D).

    Returns:
        Tensor: (B, sum of n, D).
    """
    return tokens[0] if len(tokens) == 1 else torch.cat([*tokens], dim=1)


class EncoderLayer(mmpretrain.TransformerEncoderLayer):
    """A layer of mmpretrain, computed with less time and memory.

    It takes over the parts of a layer. The results, the parameters and their
    names stay the same.

    Args:
        layer (TransformerEncoderLayer): The layer, which must not be used
            afterwards.
        lean_mlp (bool): Whether to keep less for the backward pass, see
            :class:`FFN`. Defaults to True.
    """

    def __init__(
        self, layer: mmpretrain.TransformerEncoderLayer, lean_mlp: bool = True
    ) -> None:
        # The parent's constructor would build new parts.
        super(mmpretrain.TransformerEncoderLayer, self).__init__()
        self.embed_dims = layer.embed_dims
        self.ln1, self.attn = layer.ln1, Attention(layer.attn)
        self.ln2, self.ffn = layer.ln2, layer.ffn
        if lean_mlp and FFN.fits(layer.ffn):
            self.ffn = FFN(layer.ffn)
        self.train(layer.training)

    def forward(
        self,
        x: Tensor,
        angles: Sequence[Tensor | None] = (None,),
        lengths: Sequence[int] | None = None,
    ) -> Tensor:
        """Compute the layer.

        Args:
            x (Tensor): (B, N, D).
            angles (Sequence[Tensor | None]): See :meth:`Attention.forward`.
            lengths (Sequence[int], optional): See :meth:`Attention.forward`.

        Returns:
            Tensor: (B, N, D).
        """
        x = x + self.attn(self.ln1(x), angles, lengths)
        return self.ffn(self.ln2(x), identity=x)


class Attention(nn.Module):
    """Self-attention that slices queries, keys and values at once.

    mmpretrain indexes them one by one. For each of the three, its backward
    pass then fills, copies and adds a gradient as large as all three together.

    Args:
        attn (MultiheadAttention): The module whose parts this takes over.
    """

    def __init__(self, attn: MultiheadAttention) -> None:
        super().__init__()
        self.num_heads, self.head_dims = attn.num_heads, attn.head_dims
        self.qkv, self.proj = attn.qkv, attn.proj
        self.attn_drop, self.proj_drop = attn.attn_drop, attn.proj_drop
        self.gamma1, self.out_drop = attn.gamma1, attn.out_drop

    def forward(
        self,
        x: Tensor,
        angles: Sequence[Tensor | None] = (None,),
        lengths: Sequence[int] | None = None,
    ) -> Tensor:
        """Compute attention within each round.

        Args:
            x (Tensor): The tokens of all rounds, (B, N, D).
            angles (Sequence[Tensor | None]): The rotary angles of each round,
                (1 or B, 1, n, d), for its last n tokens; see :func:`rotate`.
                Defaults to one round without rotary positions.
            lengths (Sequence[int], optional): Number of tokens of each round.
                The sum is N. Defaults to one round.

        Returns:
            Tensor: (B, N, D).
        """
        # The backward pass joins the gradients of slices by copying: once for
        # each round, and once more for all rounds if there are several.
        parts = self.qkv(x).split(lengths or [x.shape[1]], dim=1)
        mixed = [self._mix(*part) for part in zip(parts, angles)]
        x = self.proj(join_rounds(mixed))
        return self.out_drop(self.gamma1(self.proj_drop(x)))

    def _mix(self, qkv: Tensor, angles: Tensor | None) -> Tensor:
        """Attend within a round, (B, n, 3 * D) -> (B, n, D)."""
        query, key, value = (
            part.unflatten(2, (self.num_heads, self.head_dims)).transpose(1, 2)
            for part in qkv.chunk(3, dim=2)
        )  # (B, heads, n, d) each
        if angles is not None:
            query, key = rotate(query, angles), rotate(key, angles)
        dropout_p = self.attn_drop if self.training else 0.0
        x = attention(query, key, value, dropout_p=dropout_p)
        return x.transpose(1, 2).flatten(2)


class FFN(nn.Module):
    """The two linear layers of mmcv's FFN, which keep one hidden tensor.

    Only the input of GELU is kept for the backward pass, which computes the
    output of GELU again for the second linear layer. This saves a fifth of a
    step's memory (ViT-B, batch 16, bfloat16) at the cost of one more GELU. In
    training, forward hooks of the activation and the second layer do not run.

    Args:
        ffn (mmcv.cnn.bricks.transformer.FFN): The module whose parts this
            takes over.
    """

    def __init__(self, ffn: mmcv.FFN) -> None:
        super().__init__()
        self.layers = ffn.layers
        self.gamma2, self.dropout_layer = ffn.gamma2, ffn.dropout_layer

    @staticmethod
    def fits(ffn: nn.Module) -> bool:
        """Return whether a module is an FFN: linear, exact GELU, linear."""
        if not isinstance(ffn, mmcv.FFN) or ffn.num_fcs != 2:
            return False
        gelu = ffn.layers[0][1]
        return isinstance(gelu, nn.GELU) and gelu.approximate == 'none'

    def forward(self, x: Tensor, identity: Tensor) -> Tensor:
        """Compute the residual block.

        Args:
            x (Tensor): Input of the layers, (..., D).
            identity (Tensor): The residual, (..., D).

        Returns:
            Tensor: (..., D).
        """
        (expand, _, dropout), contract, _ = self.layers
        lean = (
            self.training
            and dropout.p == 0  # both dropouts have this rate
            and isinstance(contract, nn.Linear)  # LoRA may wrap it
            and not torch.compiler.is_compiling()  # it decides what to keep
        )
        if lean:
            x = _GELULinear.apply(expand(x), contract.weight, contract.bias)
        else:
            x = self.layers(x)
        return identity + self.dropout_layer(self.gamma2(x))


class _GELULinear(Function):
    """``linear(gelu(hidden))`` that keeps only ``hidden``.

    Under autocast ``hidden`` has 16 bits. Both passes cast the weights, so
    that no 16-bit copy of the weights is kept.
    """

    @staticmethod
    def forward(ctx, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Map (..., hidden dims) to (..., D)."""
        ctx.save_for_backward(hidden, weight)
        dtype = hidden.dtype
        return F.linear(F.gelu(hidden), weight.to(dtype), bias.to(dtype))

    @staticmethod
    @once_differentiable
    def backward(
        ctx, grad: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Compute the gradients of hidden, weight and bias, as needed."""
        hidden, weight = ctx.saved_tensors
        for_hidden, for_weight, for_bias = ctx.needs_input_grad
        rows = grad.flatten(0, -2)
        grad_hidden = grad_weight = grad_bias = None
        if for_hidden:
            grad_activated = grad @ weight.to(grad.dtype)
            grad_hidden = torch.ops.aten.gelu_backward(grad_activated, hidden)
        if for_weight:
            grad_weight = rows.T @ F.gelu(hidden).flatten(0, -2)
        if for_bias:
            grad_bias = rows.sum(dim=0)
        return grad_hidden, grad_weight, grad_bias
