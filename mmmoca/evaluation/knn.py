# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Weighted k-NN classification on L2-normalised features."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def knn_settings(
    k: int | Sequence[int], temperature: float | Sequence[float]
) -> list[tuple[str, int, float]]:
    """Every k with every temperature, and what its metrics are called.

    Args:
        k (int or Sequence[int]): Numbers of neighbours.
        temperature (float or Sequence[float]): T.

    Returns:
        list[tuple[str, int, float]]: Name ('k20', or 'k20_t0.07' if several
        T are tried), k and T.

    Raises:
        ValueError: If any is out of range, or there is none.
    """
    ks, ts = np.atleast_1d(k), np.atleast_1d(temperature).astype(float)
    whole = ks.dtype.kind == 'i'
    if not (ks.size and ts.size and whole and ks.min() > 0 and ts.min() > 0):
        raise ValueError(
            'k must be integers of at least 1 and temperature numbers above '
            f'0, such as k=(10, 20), temperature=0.07, but got k={k!r}, '
            f'temperature={temperature!r}'
        )
    return [
        (f'k{n}_t{t:g}' if len(ts) > 1 else f'k{n}', n, t)
        for n in ks.tolist()
        for t in ts.tolist()
    ]


def knn_search(
    query: Tensor, bank: Tensor, k: int, chunk_size: int = 8192
) -> tuple[Tensor, Tensor]:
    """Find the k rows of the bank that are most similar to each query.

    Streams over both sets, so that at most ``chunk_size`` squared
    similarities exist at a time, whatever the size of the bank. Of equally
    similar rows the first ones count.

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
    if min(len(bank), k, chunk_size) < 1:
        raise ValueError(
            f'a bank of {len(bank)} features, k={k} and '
            f'chunk_size={chunk_size} must be at least 1 each'
        )
    if query.dtype != torch.float64:
        query = query.float()
    found = []
    for part in query.split(chunk_size):
        sims = part.new_empty(len(part), 0)
        rows = sims.long()
        for start in range(0, len(bank), chunk_size):
            chunk = bank[start : start + chunk_size].to(part)
            new_sims, new_rows = _top_rows(part @ chunk.T, k)
            sims = torch.cat([sims, new_sims], 1)
            rows = torch.cat([rows, new_rows + start], 1)
            # The rows that were found earlier come first in the bank, too.
            sims, pick = sims.sort(dim=1, descending=True, stable=True)
            sims, rows = sims[:, :k], rows.gather(1, pick[:, :k])
        found.append((sims, rows))
    sims, rows = zip(*found)
    return torch.cat(sims), torch.cat(rows)


def _top_rows(sims: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Topk that takes the first of equal columns, which topk does not."""
    k = min(k, sims.shape[1])
    # The next one tells whether others are as similar as the last.
    top, columns = sims.topk(min(k + 1, sims.shape[1]))
    tied = (top[:, k - 1 : k] == top[:, k:]).any(dim=1)
    top, columns = top[:, :k], columns[:, :k]
    if tied.any():
        full, order = sims[tied].sort(dim=1, descending=True, stable=True)
        top[tied], columns[tied] = full[:, :k], order[:, :k]
    columns, order = columns.sort(1)
    top, back = top.gather(1, order).sort(dim=1, descending=True, stable=True)
    return top, columns.gather(1, back)


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

    """
    weights = (sims / temperature).softmax(1)
    votes = sims.new_zeros(len(sims), num_classes)
    return votes.scatter_add_(1, labels.to(sims.device), weights)


def knn_top1(
    query: Tensor,
    bank: Tensor,
    truth: Tensor,
    labels: Tensor,
    num_classes: int,
    ks: Sequence[int],
    temperature: float,
) -> list[float]:
    """Share of the queries that weighted k-NN classifies rightly.

    Args:
        query (Tensor): (Q, D), rows L2-normalised.
        bank (Tensor): (N, D), rows L2-normalised.
        truth (Tensor): Classes of the queries, int64, (Q,).
        labels (Tensor): Classes of the bank, int64, (N,).
        num_classes (int): C, number of classes.
        ks (Sequence[int]): Numbers of neighbours, for one search.
        temperature (float): T of the votes.

    Returns:
        list[float]: For each number, in percent.
    """
    sims, rows = knn_search(query, bank, max(ks))
    near, truth = labels.to(rows.device)[rows], truth.to(rows.device)
    votes = [
        knn_vote(sims[:, :k], near[:, :k], num_classes, temperature)
        for k in ks
    ]
    return [
        100 * (vote.argmax(dim=1) == truth).cpu().double().mean().item()
        for vote in votes
    ]
