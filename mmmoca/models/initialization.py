# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from torch import nn

__all__ = ['init_transformer']


def init_transformer(module: nn.Module) -> None:
    """Initialise as MAE does: xavier-uniform weights, zero biases.

    A convolution that embeds patches counts as the linear layer it is.
    mmpretrain's layers draw their FFN biases from N(0, 1e-6) in their own
    ``init_weights``; call this afterwards.

    Args:
        module (nn.Module): Linear, Conv2d and LayerNorm layers anywhere in
            it are initialised in place.
    """
    for layer in module.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            nn.init.xavier_uniform_(layer.weight.data.flatten(1))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.LayerNorm):
            nn.init.ones_(layer.weight)
            nn.init.zeros_(layer.bias)
