# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Weighted k-NN classification on L2-normalised features."""

import torch
from mmengine.dist import all_gather
from torch import Tensor

__all__ = ['gather_samples', 'knn_scores', 'knn_search', 'knn_vote']


def gather_samples(
    ids: Tensor, feats: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Join the shards of all ranks into one row per sample, sorted by id.

    A padded sampler hands some samples to two ranks and the shards may differ
    in length, be empty even: the result is the same on every rank and for
    every number of ranks. Called by all ranks together.

    Args:
        ids (Tensor): This rank's sample ids, int64, (n,).
        feats (Tensor): Their features, (n, D); (0, anything) if n is 0. The
            dtype is the same on all ranks.
        labels (Tensor): Their labels, int64, (n,).

    Returns:
        tuple[Tensor, Tensor, Tensor]: ids (N,), feats (N, D), labels (N,), on
        the device of the respective input.
    """
    shapes = torch.stack(all_gather(torch.tensor(feats.shape)))
    rows, width = shapes.amax(0).tolist()
    if len(feats) == 0:
        feats = feats.new_empty(0, width)

    def gather(shard: Tensor) -> Tensor:
        if len(shard) < rows:
            pad = shard.new_zeros(rows - len(shard), *shard.shape[1:])
            shard = torch.cat([shard, pad])
        parts = zip(all_gather(shard), shapes[:, 0].tolist())
        return torch.cat([part[:n] for part, n in parts])

    ids, order = gather(ids).sort(stable=True)
    first = torch.ones_like(ids, dtype=torch.bool)
    first[1:] = ids[1:] != ids[:-1]
    order = order[first]
    feats, labels = gather(feats), gather(labels)
    return ids[first], feats[order.to(feats.device)], labels[order]


def knn_search(
    query: Tensor, bank: Tensor, k: int, chunk_size: int = 8192
) -> tuple[Tensor, Tensor]:
    """Find the k rows of the bank that are most similar to each query.

    Streams over both sets, so that at most ``chunk_size`` squared
    similarities exist at a time, whatever the size of the bank.

    Args:
        query (Tensor): (Q, D), rows L2-normalised.
        bank (Tensor): (N, D), rows L2-normalised; any floating dtype (a
            half-precision bank is raised to float32 chunk by chunk) and any
            device.
        k (int): Number of neighbours; all N if the bank has no more.
        chunk_size (int): Rows per chunk of either set. Defaults to 8192.

    Returns:
        tuple[Tensor, Tensor]: Cosine similarities, descending, (Q, min(k, N)),
        in float32 (float64 for float64 queries), and the rows of the bank that
        they belong to, int64, (Q, min(k, N)).

    Raises:
        ValueError: If the bank is empty, or k or ``chunk_size`` is below 1.
    """
    if len(bank) == 0:
        raise ValueError('k-NN needs a bank of at least one feature.')
    if k < 1 or chunk_size < 1:
        raise ValueError(
            'k and chunk_size must be at least 1, but got '
            f'k={k}, chunk_size={chunk_size}.'
        )
    if query.dtype != torch.float64:
        query = query.float()
    found = []
    for part in query.split(chunk_size):
        sims = part.new_empty(len(part), 0)
        rows = sims.long()
        for start in range(0, len(bank), chunk_size):
            chunk = bank[start : start + chunk_size].to(part)
            new_sims, new_rows = (part @ chunk.T).topk(min(k, len(chunk)))
            sims = torch.cat([sims, new_sims], 1)
            rows = torch.cat([rows, new_rows + start], 1)
            sims, pick = sims.topk(min(k, sims.shape[1]))
            rows = rows.gather(1, pick)
        found.append((sims, rows))
    sims, rows = zip(*found)
    return torch.cat(sims), torch.cat(rows)


def knn_vote(
    sims: Tensor, labels: Tensor, num_classes: int, temperature: float
) -> Tensor:
    """Let neighbours vote for their classes with weight exp(sim / T).

    The weights of a query are divided by their sum, which changes no decision
    and cannot overflow at a low temperature.

    Args:
        sims (Tensor): Similarities of the neighbours, (Q, k).
        labels (Tensor): Their labels in [0, num_classes), int64, (Q, k).
        num_classes (int): Number of classes C.
        temperature (float): T, above 0.

    Returns:
        Tensor: Share of the votes per class, (Q, C); each row sums to 1.

    Raises:
        ValueError: If the temperature is not positive.
    """
    if temperature <= 0:
        raise ValueError(f'temperature must be above 0, got {temperature}.')
    weights = (sims / temperature).softmax(1)
    votes = sims.new_zeros(len(sims), num_classes)
    return votes.scatter_add_(1, labels.to(sims.device), weights)


def knn_scores(
    query: Tensor,
    bank: Tensor,
    bank_labels: Tensor,
    num_classes: int,
    k: int = 20,
    temperature: float = 0.07,
    chunk_size: int = 8192,
) -> Tensor:
    """Classify by weighted k-NN; :func:`knn_search` plus :func:`knn_vote`.

    Args:
        query (Tensor): (Q, D), rows L2-normalised.
        bank (Tensor): (N, D), rows L2-normalised.
        bank_labels (Tensor): Labels in [0, num_classes), int64, (N,).
        num_classes (int): Number of classes C.
        k (int): Number of neighbours. Defaults to 20.
        temperature (float): T of the weight exp(sim / T). Defaults to 0.07.
        chunk_size (int): See :func:`knn_search`. Defaults to 8192.

    Returns:
        Tensor: Share of the votes per class, (Q, C); ``.argmax(1)`` is the
        predicted class.

    Raises:
        ValueError: If the labels do not fit the bank or ``num_classes``, or
            as :func:`knn_search` and :func:`knn_vote` do.
    """
    if len(bank_labels) != len(bank):
        raise ValueError(
            f'The bank has {len(bank)} features, but '
            f'{len(bank_labels)} labels.'
        )
    sims, rows = knn_search(query, bank, k, chunk_size)
    low, high = int(bank_labels.min()), int(bank_labels.max())
    if low < 0 or high >= num_classes:
        raise ValueError(
            f'bank_labels must lie in [0, num_classes={num_classes}), but '
            f'span {low} to {high}.'
        )
    labels = bank_labels.to(rows.device)[rows]
    return knn_vote(sims, labels, num_classes, temperature)
