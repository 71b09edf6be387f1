# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmpretrain.models.backbones import VisionTransformer
from torch import nn


def init_encoder(vit: VisionTransformer) -> None:
    """Initialise an encoder's layers and its [CLS] and register tokens.

    Args:
        vit (VisionTransformer): The encoder, initialised in place. Its
            position embedding keeps its values.
    """
    init_transformer(vit)
    nn.init.normal_(vit.cls_token, std=0.02)
    if getattr(vit, 'num_registers', 0):
        nn.init.normal_(vit.register_tokens, std=0.02)


def init_transformer(module: nn.Module) -> None:
    """Initialise as MAE does: xavier-uniform weights, zero biases.

    The convolution that embeds patches counts as a linear layer. Call this
    after ``init_weights`` of mmpretrain's layers, which draws the biases of
    FFNs with a standard deviation of 1e-6.

    Args:
        module (nn.Module): All its Linear, Conv2d and LayerNorm layers are
            initialised in place.
    """
    for layer in module.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            nn.init.xavier_uniform_(layer.weight.data.flatten(1))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.LayerNorm):
            nn.init.ones_(layer.weight)
            nn.init.zeros_(layer.bias)
