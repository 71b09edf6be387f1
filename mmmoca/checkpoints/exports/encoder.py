# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What is exported: an encoder, and the images that it is for."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import torch
from mmpretrain.models.backbones import VisionTransformer
from torch import Tensor, nn

from ..layouts import Backbone
from ..plain_vit import PROJECTION
from ..preprocessing import Preprocessing, preprocessing_of
from ..records import file_record
from ..vits import build_vit, num_heads_of
from ..writing import file_sha256

__all__ = ['Encoder', 'Features', 'encoder_of']


class Encoder(NamedTuple):
    """An encoder that is known well enough to be built anywhere.

    Attributes:
        vit (VisionTransformer): Of mmpretrain, with its weights, in float32
            and evaluation mode.
        preprocessing (Preprocessing): How images are prepared for it.
        source (Backbone): What was read.
        record (dict): Where it is from, see :func:`backbone_checkpoint`.
    """

    vit: VisionTransformer
    preprocessing: Preprocessing
    source: Backbone
    record: dict

    @property
    def state_dict(self) -> dict[str, Tensor]:
        """Dict[str, Tensor]: Under mmpretrain's names, without a prefix."""
        return dict(self.vit.state_dict())

    @property
    def arch(self) -> dict[str, int]:
        """Dict[str, int]: Sizes, as mmpretrain's ``arch`` calls them."""
        return self.vit.arch_settings

    @property
    def patch_size(self) -> tuple[int, int]:
        """Tuple[int, int]: Height and width in pixels."""
        return tuple(self.vit.patch_embed.projection.kernel_size)

    @property
    def channels(self) -> int:
        """int: Of the images."""
        return self.vit.patch_embed.projection.in_channels

    @property
    def qkv_bias(self) -> bool:
        """bool: Whether queries, keys and values have a bias."""
        return self.vit.layers[0].attn.qkv.bias is not None

    def in_rgb(self) -> 'Encoder':
        """The encoder of RGB images that computes the same.

        Returns:
            Encoder: One of BGR images, as MMCV loads them, gets the channels
            of its patch projection in the other order; any other is itself.
        """
        images = self.preprocessing
        if images.channel_order != 'bgr':
            return self
        state = dict(self.source.state_dict)
        state[PROJECTION] = state[PROJECTION].flip(1)
        source = self.source._replace(state_dict=state)
        mean, std = images.mean[::-1], images.std[::-1]
        return _encoder(
            source,
            images._replace(mean=mean, std=std, channel_order='rgb'),
            self.arch['num_heads'],
            self.record,
        )


class Features(nn.Module):
    """Images in, the features of MOCA's evaluations out.

    Args:
        vit (VisionTransformer): With ``out_type='raw'`` and a final norm.
    """

    def __init__(self, vit: VisionTransformer) -> None:
        super().__init__()
        self.vit = vit

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Encode normalised images, (B, C, H, W).

        Returns:
            Tuple[Tensor, Tensor, Tensor]: After the final norm, [CLS] (B, D),
            [AVG], the mean patch token (B, D), and the L patch tokens row by
            row (B, L, D).
        """
        tokens = self.vit(images)[0]
        patches = tokens[:, 1:]
        return tokens[:, 0], patches.mean(dim=1), patches

    def example(self) -> Tensor:
        """Two images of zeros, to trace it with."""
        channels = self.vit.patch_embed.projection.in_channels
        return torch.zeros(2, channels, *self.vit.img_size)


def encoder_of(
    backbone: Backbone,
    path: str | os.PathLike,
    num_heads: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Encoder:
    """Complete what was read by what no tensor tells.

    Args:
        backbone (Backbone): What :func:`read_backbone` returned, adapted
            perhaps.
        path (str | os.PathLike): The file that it was read from.
        num_heads (int, optional): See :func:`num_heads_of`.
        mean (Sequence[float], optional): See :func:`preprocessing_of`.
        std (Sequence[float], optional): Likewise.

    Returns:
        Encoder: Ready to be exported.

    Raises:
        CheckpointError: If anything of that is not known, or the parts of
            the encoder do not fit each other.
    """
    about = file_record(
        path, *backbone.origin, backbone.grid, backbone.feature
    )
    about['sha256'] = file_sha256(path)
    return _encoder(
        backbone,
        preprocessing_of(backbone, mean, std),
        num_heads_of(backbone, num_heads),
        about,
    )


def _encoder(
    backbone: Backbone, images: Preprocessing, num_heads: int, about: dict
) -> Encoder:
    about = about | dict(num_heads=num_heads, preprocessing=images.as_record())
    return Encoder(build_vit(backbone, num_heads), images, backbone, about)
