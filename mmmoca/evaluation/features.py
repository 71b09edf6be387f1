# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""One feature per image, batch by batch: what all frozen protocols share."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

import numpy as np
import torch
from mmengine.dist import all_reduce
from mmengine.logging import MMLogger
from mmengine.runner import autocast
from torch import Tensor, nn
from torch.utils.data import DataLoader

from .gather import gather_samples

__all__ = [
    'FeatureShard',
    'class_label',
    'describe_batch',
    'extract_shard',
    'gather_shards',
    'rng_untouched',
]


class FeatureShard(NamedTuple):
    """Labelled features of some images, of this rank's share for example.

    Attributes:
        ids (Tensor): Which image each row is of, int64, (n,), on the CPU.
        feats (Tensor): Their features, (n, D), where the model is.
        labels (Tensor): Their class labels, int64, (n,), on the CPU.
    """

    ids: Tensor
    feats: Tensor
    labels: Tensor


@contextmanager
def rng_untouched() -> Iterator[None]:
    """Give the caller its random states back, as if nothing had run."""
    # A data loader draws a seed from the global generator each time that it
    # is iterated over: training would go on differently after a validation.
    states = random.getstate(), np.random.get_state()
    cuda = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices=cuda):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def class_label(sample, role: str) -> int:
    """The class label of a data sample.

    Args:
        sample: A data sample or a dict.
        role (str): What the images are for, 'bank' say, for the message.

    Returns:
        int: The label.

    Raises:
        ValueError: Unless the sample has one label.
    """
    label = sample.get('gt_label')
    if label is None or torch.as_tensor(label).numel() != 1:
        raise ValueError(
            f'The {role} images have no class label. Use a data set with one '
            'integer label per image (mmmoca.ImageFolder: a folder per class, '
            'with_label=True), or leave out val_cfg, val_dataloader and '
            'val_evaluator (or test_*).'
        )
    return int(label)


def describe_batch(
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
    with autocast(enabled=fp16):
        feats = model.extract_feat(data['inputs'], **kwargs)
    if isinstance(feats, (tuple, list)):
        feats = feats[-1]
    if feats.ndim != 2:
        raise ValueError(
            f'extract_feat of {type(model).__name__} must return one vector '
            f'per image, (B, D), but gave {tuple(feats.shape)}: add '
            "neck=dict(type='GlobalAveragePooling'), say."
        )
    samples = data.get('data_samples') or [{}]
    for sample in samples:
        class_label(sample, role)
        if 'sample_idx' not in sample:
            raise ValueError(
                f'The {role} images have no sample_idx: keep it '
                'among the meta_keys of PackInputs.'
            )
    return feats.float(), samples


@torch.no_grad()
def extract_shard(
    loader: DataLoader,
    describe: Callable[[dict], tuple[Tensor, Sequence]],
    title: str,
    logger: MMLogger,
    dtype: torch.dtype = torch.float32,
    log_interval: int = 50,
) -> FeatureShard:
    """Describe all images of a loader, this rank's share of them.

    The features are written into one tensor made at the start, so that a
    large set needs its memory once. Called by all ranks together.

    Args:
        loader (DataLoader): The images.
        describe (Callable): Batch -> features (B, D) and data samples.
        title (str): Begins the log lines.
        logger (MMLogger): Where progress goes.
        dtype (torch.dtype): What the features are kept in. Defaults to
            float32.
        log_interval (int): Batches from one log line to the next. Defaults
            to 50.

    Returns:
        FeatureShard: In the order of the loader.

    Raises:
        ValueError: If a feature of any rank is not finite.
    """
    feats, finite = torch.empty(0, 0, dtype=dtype), None
    labels, ids = [], []
    start = time.time()
    for i, data_batch in enumerate(loader, 1):
        batch, samples = describe(data_batch)
        seen = len(ids)
        labels += [int(sample.gt_label) for sample in samples]
        ids += [int(sample.sample_idx) for sample in samples]
        if len(ids) > len(feats):
            rows = max(len(ids), _expected_rows(loader))
            larger = batch.new_empty(rows, batch.shape[1], dtype=dtype)
            if seen:
                larger[:seen] = feats[:seen]
            feats = larger
        feats[seen : len(ids)] = batch
        good = feats[seen : len(ids)].isfinite().all()
        finite = good if finite is None else finite & good
        if i % log_interval == 0:
            each = (time.time() - start) / i
            eta = timedelta(seconds=int(each * (len(loader) - i)))
            logger.info(
                f'{title} [{i}/{len(loader)}]  eta: {eta}  time: {each:.4f}'
            )
    diverged = torch.tensor(finite is not None and not finite).int()
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


def gather_shards(shard: FeatureShard) -> FeatureShard:
    """All images on every rank, once each, in the order of their ids.

    Args:
        shard (FeatureShard): This rank's share.

    Returns:
        FeatureShard: The whole, all of it on the CPU.
    """
    return FeatureShard(
        *gather_samples(shard.ids, shard.feats.cpu(), shard.labels)
    )


def _expected_rows(loader: DataLoader) -> int:
    sampler = getattr(loader.batch_sampler, 'sampler', loader.sampler)
    return len(sampler)
