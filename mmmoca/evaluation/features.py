# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features of all images of a loader, for the frozen protocols."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from mmengine.dataset import default_collate
from mmengine.dist import all_reduce
from mmengine.logging import MMLogger
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from .loaders import class_label

LOG_INTERVAL = 50  # batches
PIXELS = 48  # of the longer side, whose values are the baseline
_DIVERGED = (
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
def extract_shard(
    loader: DataLoader,
    data_preprocessor: nn.Module,
    encode: Callable[[Tensor], Tensor],
    role: str,
    dtype: torch.dtype,
    logger: MMLogger,
) -> FeatureShard:
    """Extract features of labelled images, of this rank's share of them.

    The features are written into one tensor made at the start, so that a
    large set needs its memory once. Called by all ranks together.

    Args:
        loader (DataLoader): The images.
        data_preprocessor (nn.Module): The model's; normalises a batch.
        encode (Callable): From normalised images, (B, C, H, W), to features,
            (B, D).
        role (str): What they are for, for messages.
        dtype (torch.dtype): What the features are kept in.
        logger (MMLogger): Where progress goes.

    Returns:
        FeatureShard: In the order of the loader.

    Raises:
        ValueError: If there is not one vector an image, a sample lacks its
            label or its index, or a feature of any rank is not finite.
    """
    sampler: Any = getattr(loader.batch_sampler, 'sampler', loader.sampler)
    feats = torch.empty(0, 0, dtype=dtype)
    labels: list[int] = []
    ids: list[int] = []
    start = time.time()
    for i, data_batch in enumerate(loader, 1):
        seen = len(ids)
        # Before they go to the device: the host would wait for each of them.
        for sample in data_batch.get('data_samples') or [{}]:
            labels.append(class_label(sample, role))
            if 'sample_idx' not in sample:
                raise ValueError(
                    f'the {role} images have no sample_idx: keep it among '
                    'the meta_keys of PackInputs'
                )
            ids.append(int(sample.sample_idx))
        batch = encode(data_preprocessor(data_batch, False)['inputs'])
        if batch.ndim != 2:
            raise ValueError(
                'extract_feat must return one vector per image, (B, D), but '
                f'gave {tuple(batch.shape)}: write '
                "neck=dict(type='GlobalAveragePooling') into the model, say"
            )
        if not seen:
            feats = batch.new_empty(len(sampler), batch.shape[1], dtype=dtype)
        feats[seen : len(ids)] = batch
        if i % LOG_INTERVAL == 0:
            each = (time.time() - start) / i
            eta = timedelta(seconds=int(each * (len(loader) - i)))
            logger.info(
                f'{role} [{i}/{len(loader)}]  eta: {eta}  time: {each:.4f}'
            )
    # In parts, as a mask of all would need much memory.
    parts = feats[: len(ids)].split(2**14)
    diverged = torch.tensor(not all(p.isfinite().all() for p in parts)).int()
    all_reduce(diverged, 'max')
    if diverged:
        raise ValueError(_DIVERGED)
    return FeatureShard(
        torch.tensor(ids, dtype=torch.int64),
        feats[: len(ids)],
        torch.tensor(labels, dtype=torch.int64),
    )


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
        raise ValueError(_DIVERGED)
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
