# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features of some images, and those that every encoder should beat."""

from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F

PIXELS = 48  # of the longer side, whose values are the baseline
DIVERGED = (
    'The model gives features that are not finite: it has diverged or its '
    'weights do not fit.'
)


class FeatureShard(NamedTuple):
    """Features of some images, of this rank's share for example.

    Attributes:
        ids (Tensor): Index of each row's image, int64, (n,), on the CPU.
        feats (Tensor): Their features, (n, D), where the model is.
        labels (Tensor): Their class labels, int64, (n,), on the CPU; -1 if
            they have none.
    """

    ids: Tensor
    feats: Tensor
    labels: Tensor


def raw_pixels(inputs: Tensor) -> Tensor:
    """Return the pixels of each image as its feature, the baseline of k-NN.

    Args:
        inputs (Tensor): Images, (B, C, H, W), float. Larger ones are shrunk
            to a longer side of 48 pixels.

    Returns:
        Tensor: Pixels of zero mean and unit variance within each image,
        (B, D).
    """
    shrink = PIXELS / max(inputs.shape[-2:])
    if shrink < 1:
        size = [max(1, round(side * shrink)) for side in inputs.shape[-2:]]
        inputs = F.interpolate(inputs, size, mode='bilinear', antialias=True)
    pixels = inputs.flatten(1)
    return F.layer_norm(pixels, pixels.shape[1:])
