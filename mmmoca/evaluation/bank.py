# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Finds nearest neighbours in a bank, which may be split over the ranks."""

import torch
from mmengine.dist import all_gather, get_rank
from torch import Tensor
from torch.nn import functional as F

from .features import FeatureShard
from .gather import gather_rows, owned_rows, take_rows


def knn_search(
    query: Tensor, bank: Tensor, k: int, chunk_size: int = 8192
) -> tuple[Tensor, Tensor]:
    """Find the k rows of the bank that are most similar to each query.

    The search runs through queries and bank in chunks, so that at most
    ``chunk_size**2`` similarities exist at a time, whatever the size of the
    bank. Among equally similar rows, the first ones are chosen.

    Args:
        query (Tensor): (Q, D), rows L2-normalised.
        bank (Tensor): (N, D), rows L2-normalised; on any device.
        k (int): Number of neighbours; all N if the bank has fewer rows.
        chunk_size (int): Rows per chunk of queries or bank. Defaults to 8192.

    Returns:
        tuple[Tensor, Tensor]: Cosine similarities, descending, (Q, min(k, N)),
        in float32 (float64 for float64 queries), and the rows of the bank that
        they belong to, int64, (Q, min(k, N)).

    Raises:
        ValueError: If the bank is empty, or k or ``chunk_size`` is below 1.
    """
    if min(len(bank), k, chunk_size) < 1:
        raise ValueError(
            f'the bank has {len(bank)} features, k={k} and '
            f'chunk_size={chunk_size}: each number must be at least 1'
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
            # A stable sort leaves equally similar rows in the bank's order.
            sims, pick = sims.sort(dim=1, descending=True, stable=True)
            sims, rows = sims[:, :k], rows.gather(1, pick[:, :k])
        found.append((sims, rows))
    sims, rows = zip(*found)
    return torch.cat(sims), torch.cat(rows)


def _top_rows(sims: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest values of each row, and their columns.

    Among equal values, the first ones are chosen. ``topk`` does not ensure
    this.
    """
    k = min(k, sims.shape[1])
    # The value after the k largest shows whether the last choice is a tie.
    top, columns = sims.topk(min(k + 1, sims.shape[1]))
    tied = (top[:, k - 1 : k] == top[:, k:]).any(dim=1)
    top, columns = top[:, :k], columns[:, :k]
    if tied.any():
        full, order = sims[tied].sort(dim=1, descending=True, stable=True)
        top[tied], columns[tied] = full[:, :k], order[:, :k]
    columns, order = columns.sort(1)
    top, back = top.gather(1, order).sort(dim=1, descending=True, stable=True)
    return top, columns.gather(1, back)


class ShardedBank:
    """A bank of features that ranks store in parts and search together.

    Every rank searches its own part for the queries of all ranks, and the
    neighbours are merged: no feature of the bank ever moves. Among equally
    similar images, those with the lower ids are chosen, so the result does not
    depend on the number of ranks, on padding or on the order of the shards.

    Every search needs all ranks. A rank that has run out of queries calls
    :meth:`serve`, which takes part in the searches of the other ranks.

    Args:
        shard (FeatureShard): This rank's part; rows L2-normalised.
            Samples that a padded sampler repeated are dropped.

    Attributes:
        num_images (int): Number of images in the whole bank.
        class_labels (Tensor): The labels that occur in the whole bank, sorted,
            (C,).
    """

    def __init__(self, shard: FeatureShard) -> None:
        rows, self.num_images = owned_rows(shard.ids)
        self.feats = take_rows(shard.feats, rows)
        self.ids = shard.ids[rows].to(self.feats.device)
        self.labels = shard.labels[rows].to(self.feats.device)
        self.class_labels = torch.cat(
            gather_rows(shard.labels.unique())
        ).unique()

    def serve(self, k: int) -> None:
        """Answer the other ranks' queries until they have no more."""
        while self.search(None, k) is not None:
            pass

    def search(
        self, query: Tensor | None, k: int
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Find the k nearest images of each query in the whole bank.

        Args:
            query (Tensor | None): This rank's queries, L2-normalised, (Q, D),
                float; Q may differ between the ranks. None if this rank has no
                more queries.
            k (int): Number of neighbours, the same on all ranks. If the
                bank has only N < k images, all of them are returned.

        Returns:
            tuple[Tensor, Tensor, Tensor] | None: The neighbours' cosine
            similarities in descending order, ids and labels, (Q, min(k, N))
            each. None if no rank has a query.
        """
        active = all_gather(torch.tensor(query is not None).int())
        if not any(active):
            return None
        if query is None:
            query = torch.empty(0, 0, device=self.feats.device)
        queries = gather_rows(query)
        found = [
            torch.stack(all_gather(part))
            for part in self._search_own(torch.cat(queries), k)
        ]  # (ranks, queries, k) each
        start = sum(len(part) for part in queries[: get_rank()])
        sims, ids, labels = (
            part[:, start : start + len(query)].transpose(0, 1).flatten(1)
            for part in found
        )
        by_id = ids.argsort(1)
        by_sim = sims.gather(1, by_id).argsort(
            dim=1, descending=True, stable=True
        )
        best = by_id.gather(1, by_sim)[:, : min(k, self.num_images)]
        sims, ids, labels = (x.gather(1, best) for x in (sims, ids, labels))
        return sims, ids, labels

    def _search_own(
        self, query: Tensor, k: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return neighbours in this rank's part; pad them to k with -inf."""
        sims = query.new_empty(len(query), 0)
        rows = sims.long()
        if len(self.feats):
            sims, rows = knn_search(query, self.feats, k)
        left = 0, k - sims.shape[1]
        sims = F.pad(sims, left, value=-torch.inf)
        return (
            sims,
            F.pad(self.ids[rows], left),
            F.pad(self.labels[rows], left),
        )
