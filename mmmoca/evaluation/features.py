# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features of all images of a loader, for the frozen protocols."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from mmengine.dataset import default_collate
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

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
        labels (Tensor): Their class labels, int64, (n,), on the CPU; (0,) if
            they have none.
    """

    ids: Tensor
    feats: Tensor
    labels: Tensor


@torch.no_grad()
def extract_features(
    dataset: Dataset,
    data_preprocessor: nn.Module,
    encoders: dict[str, Callable[[Tensor], Tensor]],
    batch_size: int = 250,
    num_workers: int = 0,
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Read all images once, for one or several encoders.

    Args:
        dataset (Dataset): Gives ``inputs``, images of equal size, and
            ``data_samples``.
        data_preprocessor (nn.Module): The model's; normalises a batch.
        encoders (dict[str, Callable]): Name -> function from normalised
            images (B, C, H, W) to features (B, D).
        batch_size (int): Images at a time. Defaults to 250.
        num_workers (int): Processes that read. Defaults to 0, this one.

    Returns:
        tuple[dict[str, Tensor], Tensor | None]: L2-normalised features of
        each encoder, (N, D), float32, on the CPU; and the class labels,
        (N,), int64, or None if the images have none.

    Raises:
        ValueError: If a feature is not finite.
    """
    options = dict(num_workers=num_workers, collate_fn=default_collate)
    parts, labels = [], []
    for data_batch in DataLoader(dataset, batch_size, **options):
        samples = data_batch['data_samples']
        labels += [s.gt_label for s in samples if 'gt_label' in s]
        inputs = data_preprocessor(data_batch, False)['inputs']
        feats = [encode(inputs) for encode in encoders.values()]
        parts.append([F.normalize(x.float(), dim=1).cpu() for x in feats])
    by_name = dict(zip(encoders, map(torch.cat, zip(*parts))))
    if not all(feats.isfinite().all() for feats in by_name.values()):
        raise ValueError(DIVERGED)
    return by_name, torch.cat(labels) if labels else None


def raw_pixels(inputs: Tensor) -> Tensor:
    """The pixels of each image as its feature, the baseline of k-NN.

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
