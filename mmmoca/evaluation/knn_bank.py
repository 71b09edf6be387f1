# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A k-NN bank that is spread over the ranks."""

import torch
from mmengine.dist import all_gather, get_rank
from torch import Tensor
from torch.nn import functional as F

from .features import FeatureShard
from .gather import gather_rows, owned_rows, take_rows
from .knn import knn_search


class ShardedBank:
    """Search in a bank that is spread over the ranks.

    Every rank searches its own part for the queries of all ranks, and the
    neighbours are merged: no feature of the bank ever moves. Of equally
    similar images those of lower id count, so the result does not depend on
    the number of ranks, on padding or on the order of the shards.

    All methods are called by all ranks together; a rank that has run out of
    queries calls :meth:`serve`.

    Args:
        shard (FeatureShard): This rank's part; rows L2-normalised, in any
            floating dtype. Samples that a padded sampler repeated are
            dropped.

    Attributes:
        num_images (int): Images of the whole bank.
        class_labels (Tensor): The labels that occur in it, sorted, (C,).
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
        """Search for the other ranks until they have no more queries."""
        while self.search(None, k) is not None:
            pass

    def search(
        self, query: Tensor | None, k: int
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Find the k nearest images of each query in the whole bank.

        Args:
            query (Tensor | None): This rank's queries, L2-normalised, (Q, D),
                float; Q may differ between the ranks. None if there are no
                more.
            k (int): Number of neighbours; all N images if there are no more.
                The same on all ranks.

        Returns:
            tuple[Tensor, Tensor, Tensor] | None: Cosine similarities,
            descending, ids and labels of the neighbours, (Q, min(k, N)) each.
            None if no rank has a query.
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
        """Neighbours in this part, filled up to k by some at -inf."""
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
