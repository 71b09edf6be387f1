# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Features of all images of a loader, for the frozen protocols."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NamedTuple

import torch
from mmengine.dataset import default_collate
from mmengine.dist import all_reduce
from mmengine.logging import MMLogger
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from .loaders import class_label

LOG_INTERVAL = 50  # batches


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


def batch_features(
    model: nn.Module,
    data_batch: dict,
    role: str,
    which: str | None = None,
    fp16: bool = False,
) -> tuple[Tensor, Sequence]:
    """Features of a batch of labelled images.

    Args:
        model (nn.Module): Has ``data_preprocessor`` and
            ``extract_feat(inputs)``, which returns (B, D), or a tuple whose
            last item is that.
        data_batch (dict): Batch of a loader.
        role (str): What the images are for, for messages.
        which (str, optional): Handed on to ``extract_feat``; the model's own
            default if not given.
        fp16 (bool): Run under autocast (bfloat16 on a CPU).

    Returns:
        tuple[Tensor, Sequence]: Features (B, D), float32, and the data
        samples.

    Raises:
        ValueError: If there is not one vector an image, or a sample lacks
            its label or its index.
    """
    data = model.data_preprocessor(data_batch, False)
    kwargs = {} if which is None else dict(which=which)
    inputs = data['inputs']
    with torch.autocast(inputs.device.type, enabled=fp16):
        feats = model.extract_feat(inputs, **kwargs)
    if isinstance(feats, (tuple, list)):
        feats = feats[-1]
    if feats.ndim != 2:
        raise ValueError(
            f'extract_feat of {type(model).__name__} must return one vector '
            f'per image, (B, D), but gave {tuple(feats.shape)}: add '
            "neck=dict(type='GlobalAveragePooling'), say"
        )
    samples = data.get('data_samples') or [{}]
    for sample in samples:
        class_label(sample, role)
        if 'sample_idx' not in sample:
            raise ValueError(
                f'the {role} images have no sample_idx: keep it among the '
                'meta_keys of PackInputs'
            )
    return feats.float(), samples


@torch.no_grad()
def extract_shard(
    loader: DataLoader,
    encode_batch: Callable[[dict], tuple[Tensor, Sequence]],
    title: str = '',
    logger: MMLogger | None = None,
    dtype: torch.dtype = torch.float32,
) -> FeatureShard:
    """Extract features of a loader's images, of this rank's share of them.

    The features are written into one tensor made at the start, so that a
    large set needs its memory once. Called by all ranks together.

    Args:
        loader (DataLoader): The images.
        encode_batch (Callable): Batch -> features (B, D) and data samples.
        title (str): Begins the log lines.
        logger (MMLogger, optional): Where progress goes.
        dtype (torch.dtype): What the features are kept in. Defaults to
            float32.

    Returns:
        FeatureShard: In the order of the loader.

    Raises:
        ValueError: If a feature of any rank is not finite.
    """
    sampler = getattr(loader.batch_sampler, 'sampler', loader.sampler)
    feats = torch.empty(0, 0, dtype=dtype)
    labels, ids = [], []
    start = time.time()
    for i, data_batch in enumerate(loader, 1):
        batch, samples = encode_batch(data_batch)
        seen = len(ids)
        labels += [int(s.gt_label) for s in samples if 'gt_label' in s]
        ids += [int(sample.sample_idx) for sample in samples]
        if not seen:
            feats = batch.new_empty(len(sampler), batch.shape[1], dtype=dtype)
        feats[seen : len(ids)] = batch
        if logger is not None and i % LOG_INTERVAL == 0:
            each = (time.time() - start) / i
            eta = timedelta(seconds=int(each * (len(loader) - i)))
            logger.info(
                f'{title} [{i}/{len(loader)}]  eta: {eta}  time: {each:.4f}'
            )
    # In parts, as a mask of all would need much memory.
    parts = feats[: len(ids)].split(2**14)
    diverged = torch.tensor(not all(p.isfinite().all() for p in parts)).int()
    all_reduce(diverged, 'max')
    if diverged:
        raise ValueError(
            'The model gives features that are not finite: '
            'it has diverged or its weights do not fit.'
        )
    return FeatureShard(
        torch.tensor(ids, dtype=torch.int64),
        feats[: len(ids)],
        torch.tensor(labels, dtype=torch.int64),
    )


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
    widths = {}

    def encode_batch(data_batch: dict) -> tuple[Tensor, Sequence]:
        data = data_preprocessor(data_batch, False)
        parts = []
        for name, encode in encoders.items():
            feats = encode(data['inputs']).float()
            parts.append(F.normalize(feats, dim=1).cpu())
            widths[name] = feats.shape[1]
        return torch.cat(parts, dim=1), data['data_samples']

    loader = DataLoader(
        dataset,
        batch_size,
        num_workers=num_workers,
        collate_fn=default_collate,
    )
    _, feats, labels = extract_shard(loader, encode_batch)
    parts = feats.split(list(widths.values()), dim=1)
    by_name = {name: part.contiguous() for name, part in zip(widths, parts)}
    return by_name, labels if len(labels) else None


def raw_pixels(inputs: Tensor, max_side: int = 48) -> Tensor:
    """The pixels of each image as its feature, the baseline of k-NN.

    Args:
        inputs (Tensor): Images, (B, C, H, W), float.
        max_side (int): Larger images are shrunk to this longer side, in
            pixels. Defaults to 48.

    Returns:
        Tensor: Pixels of zero mean and unit variance within each image,
        (B, D).
    """
    shrink = max_side / max(inputs.shape[-2:])
    if shrink < 1:
        size = [max(1, round(side * shrink)) for side in inputs.shape[-2:]]
        inputs = F.interpolate(inputs, size, mode='bilinear', antialias=True)
    pixels = inputs.flatten(1)
    return F.layer_norm(pixels, pixels.shape[1:])
