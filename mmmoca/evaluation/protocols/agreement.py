# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Agreement of neighbours: a measure of encoders that needs no labels."""

import torch
from torch import Tensor

from ..bank import ShardedBank
from ..features import FeatureShard
from ..gather import owned_rows, take_rows


def neighbour_agreement(shard: FeatureShard, k: int = 10) -> list[dict]:
    """Compare the nearest images of two views of each image.

    For each image, the k nearest images are found twice: once with the first
    views of all images, once with their second views. The agreement is the
    Jaccard index of the two sets: the number of images in both, divided by
    the number in at least one.

    All ranks call this together, each with its own images. The result does not
    depend on the number of ranks.

    Args:
        shard (FeatureShard): This rank's images. ``feats`` contains the
            features of both views side by side, (n, 2 * D), each of unit
            length.
        k (int): Number of neighbours. With fewer than 10 * k images, it is a
            tenth of their number instead, but at least 1. Defaults to 10.

    Returns:
        list[dict]: ``sample_idx`` and ``agreement`` of this rank's share of
        the images. Each image is on one rank only.

    Raises:
        ValueError: If there are fewer than three images.
    """
    rows, number = owned_rows(shard.ids)
    if number < 3:
        raise ValueError(
            f'{number} images are too few to compare neighbours: use three or '
            'more, or, in a config, set val_cfg.agreement=None'
        )
    k = nearest_of(number, k)
    ids, views = shard.ids[rows], take_rows(shard.feats, rows)
    first, second = (_others(ids, v, k) for v in views.chunk(2, dim=1))
    shared = (first[:, :, None] == second[:, None]).sum(dim=(1, 2))
    agreement = shared / (2 * k - shared)
    return [
        dict(sample_idx=index, agreement=value)
        for index, value in zip(ids.tolist(), agreement.tolist())
    ]


def nearest_of(number: int, k: int) -> int:
    """Return k, or a tenth of the number of images if that is smaller."""
    return max(1, min(k, number // 10))


def _others(ids: Tensor, views: Tensor, k: int) -> Tensor:
    """Return the ids of each view's k nearest other images, (n, k)."""
    bank = ShardedBank(FeatureShard(ids, views, torch.zeros_like(ids)))
    found = [ids.new_empty(0, k)]
    for own, part in zip(ids.split(256), views.split(256)):
        _, near, _ = bank.search(part, k + 1)
        # Duplicates of an image may rank before it, or push it out.
        is_own = near == own.to(near.device)[:, None]
        order = is_own.int().argsort(dim=1, stable=True)
        found.append(near.gather(1, order)[:, :k].cpu())
    bank.serve(k + 1)
    return torch.cat(found)
