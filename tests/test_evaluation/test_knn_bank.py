# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A bank spread over processes finds what one process finds."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from mmengine.dist import get_rank, get_world_size

from mmmoca.evaluation import ShardedBank, knn_search
from mmmoca.evaluation.features import FeatureShard
from tests.distributed import run_processes

K = 7


def _set(ties=False):
    """53 bank and 20 query images; with ties, few distinct features."""
    generator = torch.Generator().manual_seed(0)
    # Small integers: their products are exact in any order of summation.
    high = 2 if ties else 200
    bank = torch.randint(-high, high + 1, (53, 6), generator=generator)
    query = torch.randint(-high, high + 1, (20, 6), generator=generator)
    labels = torch.randint(0, 5, (53,), generator=generator)
    return bank.float(), query.float(), labels


def _shares(kind, count, world):
    """Ids that each rank holds."""
    ids = torch.arange(count)
    if kind == 'shuffled':
        ids = torch.randperm(count, generator=torch.Generator().manual_seed(1))
    if kind == 'first rank empty':
        rest = world - 1
        return [ids[:0]] + [ids[i::rest] for i in range(rest)]
    if kind != 'uneven':
        ids = torch.cat([ids, ids[: -count % world]])  # as DefaultSampler
    return [ids[rank::world] for rank in range(world)]


def _search(ties, kind):
    bank, query, labels = _set(ties)
    rank, world = get_rank(), get_world_size()
    own = _shares(kind, len(bank), world)[rank]
    feats = bank[own] if len(own) else torch.empty(0, 0)
    sharded = ShardedBank(FeatureShard(own, feats, labels[own]), 8)
    # As many batches on the last rank as on all others together.
    mine = query[5:] if rank == world - 1 else query[rank : rank + 1]
    found = [sharded.search(batch, K) for batch in mine.split(2)]
    sharded.serve(K)
    found = [torch.cat(part) for part in zip(*found)]
    return (*found, len(sharded.feats), sharded.num_images)


CASES = list(
    itertools.product(
        (False, True), ('padded', 'uneven', 'shuffled', 'first rank empty')
    )
)


def _search_all():
    return [_search(*case) for case in CASES]


@pytest.mark.processes
@pytest.mark.parametrize('world', [2, 3])
def test_shards_find_what_the_whole_bank_does(world):
    outputs = run_processes(_search_all, world)
    assert len(outputs) == world
    for (ties, kind), *ranks in zip(CASES, *outputs):
        bank, query, labels = _set(ties)
        # Without chunks: a full stable sort, equal rows by their number.
        full = (query @ bank.T).sort(dim=1, descending=True, stable=True)
        if ties:
            assert (full.values[:, K - 1] == full.values[:, K]).any()
        for rank, (sims, ids, found_labels, rows, count) in enumerate(ranks):
            last = rank == world - 1
            mine = slice(5, None) if last else slice(rank, rank + 1)
            assert torch.equal(sims, full.values[mine, :K])
            assert torch.equal(ids, full.indices[mine, :K])
            assert torch.equal(found_labels, labels[full.indices[mine, :K]])
            assert count == 53
            # Its own part and no more.
            assert rows <= -(-53 // (world - (kind == 'first rank empty')))
        assert sum(found[3] for found in ranks) == 53


def test_one_process_and_more_neighbours_than_images():
    bank, query, labels = _set()
    bank, query = F.normalize(bank, dim=1), F.normalize(query, dim=1)
    ids = torch.arange(53) * 10
    sharded = ShardedBank(FeatureShard(ids, bank.half(), labels - 2), 8)
    sims, found, found_labels = sharded.search(query, 100)
    expected, rows = knn_search(query, bank.half(), 100)
    assert sims.shape == (20, 53)
    torch.testing.assert_close(sims, expected)
    assert torch.equal(found, ids[rows])
    assert torch.equal(found_labels, labels[rows] - 2)
    assert sharded.class_labels.tolist() == [-2, -1, 0, 1, 2]


def test_whole_shards_are_not_copied():
    bank, _, labels = _set()
    ordered = ShardedBank(FeatureShard(torch.arange(53), bank, labels))
    assert ordered.feats.data_ptr() == bank.data_ptr()
    ids = torch.arange(53).flip(0)
    turned = ShardedBank(FeatureShard(ids, bank, labels))
    assert torch.equal(turned.feats, bank.flip(0))
