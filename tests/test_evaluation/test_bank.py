# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A bank in one process; test_ranks tests banks in several."""

import torch

from mmmoca.evaluation import ShardedBank, knn_search
from mmmoca.evaluation.features import FeatureShard
from mmmoca.evaluation.protocols.knn import knn_settings, small_bank


def images():
    """Return 53 bank and 20 query images, with ties."""
    generator = torch.Generator().manual_seed(0)
    # Products of small integers are exact in any order of summation.
    bank = torch.randint(-2, 3, (53, 6), generator=generator)
    query = torch.randint(-2, 3, (20, 6), generator=generator)
    labels = torch.randint(0, 5, (53,), generator=generator)
    return bank.float(), query.float(), labels


def test_one_process_and_more_neighbours_than_images():
    bank, query, labels = images()
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
    bank, _, labels = images()
    ordered = ShardedBank(FeatureShard(torch.arange(53), bank, labels))
    assert ordered.feats.data_ptr() == bank.data_ptr()
    ids = torch.arange(53).flip(0)
    turned = ShardedBank(FeatureShard(ids, bank, labels))
    assert torch.equal(turned.feats, bank.flip(0))


def test_more_neighbours_than_images():
    settings = knn_settings((5, 10, 20), 0.07)
    assert small_bank(settings, 20) is None
    assert '10, 20' in small_bank(settings, 9)
