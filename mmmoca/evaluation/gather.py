# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Joins samples of several ranks, whose shares may be uneven or overlap."""

import torch
from mmengine.dist import all_gather, get_rank, get_world_size
from torch import Tensor


def gather_rows(shard: Tensor) -> list[Tensor]:
    """Gather shards that may differ in length or be empty.

    All ranks call this together.

    Args:
        shard (Tensor): This rank's rows, (n, *); all ranks must have the same
            number of dimensions and dtype. The further dimensions must also
            agree, unless n is 0.

    Returns:
        list[Tensor]: The shard of each rank, on the device of ``shard``.
    """
    if get_world_size() == 1:
        return [shard]
    shapes = torch.stack(all_gather(torch.tensor(shard.shape)))
    rows, *others = shapes.amax(0).tolist()
    padded = shard.new_zeros(rows, *others)
    if len(shard):
        padded[: len(shard)] = shard
    parts = zip(all_gather(padded), shapes[:, 0].tolist())
    return [part[:count] for part, count in parts]


def owned_rows(ids: Tensor) -> tuple[Tensor, int]:
    """Choose the rows of this rank so that each sample belongs to one rank.

    A padded sampler hands some samples to two ranks, or twice to one rank.
    Of all rows with such a sample, only the first one on the lowest rank is
    kept. All ranks call this together.

    Args:
        ids (Tensor): This rank's sample ids, int64, (n,), on the CPU.

    Returns:
        tuple[Tensor, int]: The rows to keep, in the order of their ids,
        int64, (m,); and the number of samples on all ranks together.
    """
    shards = gather_rows(ids)
    order = _first_rows(torch.cat(shards))
    start = sum(len(shard) for shard in shards[: get_rank()])
    own = order[(order >= start) & (order < start + len(ids))]
    return own - start, len(order)


def gather_samples(
    ids: Tensor, feats: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Join the shards of all ranks into one row per sample, sorted by id.

    The result is the same on every rank and for every number of ranks. Each
    rank holds the whole result. All ranks call this together.

    Args:
        ids (Tensor): This rank's sample ids, int64, (n,).
        feats (Tensor): Features of the samples, (n, D); D may be anything if
            n is 0. The dtype is the same on all ranks.
        labels (Tensor): Labels of the samples, int64, (n,).

    Returns:
        tuple[Tensor, Tensor, Tensor]: ids (N,), feats (N, D), labels (N,), on
        the device of the respective input.
    """
    ids, feats, labels = (
        parts[0] if len(parts) == 1 else torch.cat(parts)
        for parts in map(gather_rows, (ids, feats, labels))
    )
    order = _first_rows(ids)
    ids, feats, labels = (take_rows(x, order) for x in (ids, feats, labels))
    return ids, feats, labels


def take_rows(part: Tensor, rows: Tensor) -> Tensor:
    """Select rows of a tensor, without a copy if they are the first ones.

    A copy would double the memory.
    """
    if torch.equal(rows, torch.arange(len(rows))):
        return part[: len(rows)]
    return part[rows.to(part.device)]


def _first_rows(ids: Tensor) -> Tensor:
    """Return the first row of each id, in the order of the ids."""
    ids, order = ids.sort(stable=True)
    first = torch.ones_like(ids, dtype=torch.bool)
    first[1:] = ids[1:] != ids[:-1]
    return order[first]
