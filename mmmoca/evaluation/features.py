# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features of images, and raw pixels as a baseline for every encoder."""

from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F

PIXELS = 48  # longer side of the images whose pixels are the baseline
DIVERGED = (
    'The model gives features that are not finite: it has diverged or its '
    'weights do not fit.'
)


class FeatureShard(NamedTuple):
    """Features of some images, such as this rank's share.

    Attributes:
        ids (Tensor): Index of each row's image, int64, (n,), on the CPU.
        feats (Tensor): Features of the images, (n, D), on the model's device.
        labels (Tensor): Class labels of the images, int64, (n,), on the CPU;
            -1 for an image without a label.
    """

    ids: Tensor
    feats: Tensor
    labels: Tensor


def raw_pixels(inputs: Tensor) -> Tensor:
    """Return the pixels of each image as its feature, the baseline of k-NN.

    Args:
        inputs (Tensor): Images, (B, C, H, W), float. Images whose longer side
            is above 48 pixels are shrunk to 48.

    Returns:
        Tensor: Pixels with zero mean and unit variance within each image,
        (B, D).
    """
    shrink = PIXELS / max(inputs.shape[-2:])
    if shrink < 1:
        size = [max(1, round(side * shrink)) for side in inputs.shape[-2:]]
        inputs = F.interpolate(inputs, size, mode='bilinear', antialias=True)
    pixels = inputs.flatten(1)
    return F.layer_norm(pixels, pixels.shape[1:])
