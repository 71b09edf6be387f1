# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""mmpretrain's transformer layers with less time and memory in training."""

import torch
from mmcv.cnn.bricks.transformer import FFN
from mmengine.model import Sequential
from mmpretrain.models.utils.attention import (
    MultiheadAttention,
    scaled_dot_product_attention_pyimpl,
)
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F

__all__ = ['MLP', 'Attention', 'attention', 'use_lean_layers']


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


class Attention(MultiheadAttention):
    """Self-attention whose queries, keys and values are unbound at once.

    Indexing them one by one, as the base class does, makes the backward pass
    fill, copy and add a gradient of all three for each.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Mix the tokens.

        Args:
            x (Tensor): (B, N, D).

        Returns:
            Tensor: (B, N, D).
        """
        heads = self.qkv(x).unflatten(2, (3, self.num_heads, self.head_dims))
        dropout_p = self.attn_drop if self.training else 0.0
        x = self.scaled_dot_product_attention(
            *heads.permute(2, 0, 3, 1, 4).unbind(0), dropout_p=dropout_p
        )  # (B, heads, N, d)
        x = self.proj(x.transpose(1, 2).flatten(2))
        return self.out_drop(self.gamma1(self.proj_drop(x)))


class MLP(Sequential):
    """The two linear layers of an FFN, which keep one hidden tensor, not two.

    In training the backward pass, which needs GELU's input anyway, makes its
    output from it once more for the second linear layer. That saves a fifth
    of a step's memory (ViT-B, batch 16, bfloat16). Forward hooks of the
    activation and the second layer do not run then, only in evaluation.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Apply both layers.

        Args:
            x (Tensor): (..., D).

        Returns:
            Tensor: (..., D).
        """
        (expand, _, dropout), contract, _ = self  # dropouts of one rate
        lean = (
            self.training
            and dropout.p == 0
            and isinstance(contract, nn.Linear)  # not wrapped, by LoRA say
            and not torch.compiler.is_compiling()  # chooses by itself
        )
        if not lean:
            return super().forward(x)
        return _GELULinear.apply(expand(x), contract.weight, contract.bias)


class _GELULinear(Function):
    """``linear(gelu(hidden))`` that keeps ``hidden`` alone.

    Under autocast ``hidden`` has 16 bits. Weights are cast in both passes
    instead of being kept a second time.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, hidden: Tensor, weight: Tensor, bias: Tensor
    ) -> Tensor:
        """Map (..., hidden dims) to (..., D)."""
        ctx.save_for_backward(hidden, weight)
        dtype = hidden.dtype
        return F.linear(F.gelu(hidden), weight.to(dtype), bias.to(dtype))

    @staticmethod
    @once_differentiable
    def backward(
        ctx: FunctionCtx, grad: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Gradients of hidden, weight and bias, those that are needed."""
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


def use_lean_layers(layers: nn.ModuleList) -> None:
    """Have mmpretrain's transformer layers compute as those above do.

    Only the classes of their parts change: parameters, their names and the
    results stay the same.

    Args:
        layers (nn.ModuleList): Of ``TransformerEncoderLayer``.
    """
    for layer in layers:
        layer.attn.__class__ = Attention
        layer.attn.scaled_dot_product_attention = attention
        two_layers = isinstance(layer.ffn, FFN) and layer.ffn.num_fcs == 2
        if two_layers and _is_exact_gelu(layer.ffn.layers[0][1]):
            layer.ffn.layers.__class__ = MLP


def _is_exact_gelu(activation: nn.Module) -> bool:
    return isinstance(activation, nn.GELU) and activation.approximate == 'none'
