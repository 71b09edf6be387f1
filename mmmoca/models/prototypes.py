# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.nn import functional as F

from .initialization import init_transformer
from .precision import normalize_fp32


class PrototypeGenerator(BaseModule):
    """G^b or G^d: generates a prototype from every word of the codebook.

    The layers are L2Norm, Linear, BatchNorm, ReLU and Linear. A skip
    connection adds the normalised words; another L2Norm follows (paper,
    sections 3.2.1 and C.1). BatchNorm always normalises over the K words. It
    has no running statistics, so a forward pass changes no state.

    Args:
        in_channels (int): D, width of the codebook's words.
        out_channels (int): Width of the prototypes. If it equals D, the skip
            connection is the identity, else a Linear layer.
    """

    eps = 1e-5

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        hidden = 2 * in_channels
        self.fc1 = nn.Linear(in_channels, hidden, bias=False)
        self.bn = nn.BatchNorm1d(hidden, track_running_stats=False)
        self.fc2 = nn.Linear(hidden, out_channels)
        self.skip = (
            nn.Identity()
            if out_channels == in_channels
            else nn.Linear(in_channels, out_channels)
        )

    def init_weights(self) -> None:
        """Set Xavier-uniform weights and zero biases."""
        init_transformer(self)

    def forward(self, words: Tensor) -> Tensor:
        """Generate unit-norm prototypes.

        Args:
            words (Tensor): Codebook C, (K, D).

        Returns:
            Tensor: W with rows of unit norm, (K, out_channels), float32.
        """
        words = normalize_fp32(words, self.eps)
        hidden = F.relu(self.bn(self.fc1(words)))  # (K, 2D)
        prototypes = self.fc2(hidden) + self.skip(words)
        return normalize_fp32(prototypes, self.eps)
