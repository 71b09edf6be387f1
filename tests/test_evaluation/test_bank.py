# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A bank spread over processes finds what one process finds."""

import pytest
import torch
from mmengine.dist import get_rank

from mmmoca.evaluation import ShardedBank, knn_predictions, knn_search
from mmmoca.evaluation.features import FeatureShard
from mmmoca.evaluation.protocols.knn import knn_settings, small_bank
from tests.helpers.distributed import run_processes

K = 7


def _set():
    """53 bank and 20 query images, with ties."""
    generator = torch.Generator().manual_seed(0)
    # Small integers: their products are exact in any order of summation.
    bank = torch.randint(-2, 3, (53, 6), generator=generator)
    query = torch.randint(-2, 3, (20, 6), generator=generator)
    labels = torch.randint(0, 5, (53,), generator=generator)
    return bank.float(), query.float(), labels


def _shares(kind, count):
    """Ids that each rank holds."""
    ids = torch.arange(count)
    if kind == 'shuffled':
        ids = torch.randperm(count, generator=torch.Generator().manual_seed(1))
    if kind == 'first rank empty':
        return [ids[:0], ids]
    if kind != 'uneven':
        ids = torch.cat([ids, ids[: count % 2]])  # as DefaultSampler
    return [ids[rank::2] for rank in range(2)]


def _search(kind):
    bank, query, labels = _set()
    rank = get_rank()
    own = _shares(kind, len(bank))[rank]
    feats = bank[own] if len(own) else torch.empty(0, 0)
    sharded = ShardedBank(FeatureShard(own, feats, labels[own]))
    # Many batches on one rank, a single one on the other.
    mine = query[5:] if rank else query[:1]
    found = [sharded.search(batch, K) for batch in mine.split(2)]
    sharded.serve(K)
    found = [torch.cat(part) for part in zip(*found)]
    return (*found, len(sharded.feats), sharded.num_images)


KINDS = ('padded', 'uneven', 'shuffled', 'first rank empty')


def _classify():
    """Nearest labels of three batches on one rank, and of none on another."""
    bank, query, labels = _set()
    own = _shares('padded', len(bank))[get_rank()]
    ids = torch.arange(0 if get_rank() else 520)
    batches = knn_predictions(
        FeatureShard(own, bank[own], labels[own]),
        FeatureShard(ids, query[ids % 20], ids),
        knn_settings(1, 0.07),
    )
    return [
        sample['knn_pred']['k1'] for samples in batches for sample in samples
    ]


def _search_all():
    # Votes come last: a rank that has ended does not answer the other.
    return [_search(kind) for kind in KINDS] + [_classify()]


@pytest.mark.processes
def test_shards_find_what_the_whole_bank_does():
    outputs = run_processes(_search_all, 2)
    bank, query, labels = _set()
    # Without chunks: a full stable sort, equal rows by their number.
    full = (query @ bank.T).sort(dim=1, descending=True, stable=True)
    assert (full.values[:, K - 1] == full.values[:, K]).any()
    for kind, *ranks in zip(KINDS, *outputs):
        for rank, (sims, ids, found_labels, rows, count) in enumerate(ranks):
            mine = slice(5, None) if rank else slice(0, 1)
            assert torch.equal(sims, full.values[mine, :K])
            assert torch.equal(ids, full.indices[mine, :K])
            assert torch.equal(found_labels, labels[full.indices[mine, :K]])
            assert count == 53
            # Its own part and no more.
            assert rows <= (53 if kind == 'first rank empty' else 27)
        assert sum(found[3] for found in ranks) == 53
    nearest = labels[full.indices[:, :1]].tolist()
    assert [output[-1] for output in outputs] == [nearest * 26, []]


def test_one_process_and_more_neighbours_than_images():
    bank, query, labels = _set()
    ids = torch.arange(53) * 10
    sharded = ShardedBank(FeatureShard(ids, bank, labels - 2))
    sims, found, found_labels = sharded.search(query, 100)
    expected, rows = knn_search(query, bank, 100)
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


def test_more_neighbours_than_images():
    settings = knn_settings((5, 10, 20), 0.07)
    assert small_bank(settings, 20) is None
    assert '10, 20' in small_bank(settings, 9)
