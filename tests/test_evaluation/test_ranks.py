# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Two processes with parts of the images find the same as one process."""

import numpy as np
import pytest
import torch
from mmengine.dist import get_rank

from mmmoca.evaluation import ShardedBank, gather_samples, knn_predictions
from mmmoca.evaluation.features import FeatureShard
from mmmoca.evaluation.protocols.in_context import PatchBank
from mmmoca.evaluation.protocols.knn import knn_settings
from tests.helpers.distributed import run_processes
from tests.test_evaluation import test_agreement, test_bank, test_in_context

pytestmark = pytest.mark.processes

K = 7
KINDS = ('padded', 'uneven', 'shuffled', 'first rank empty')


def agree():
    """Measure agreement on part of the images; one occurs twice as padding."""
    rows = torch.arange(test_agreement.COUNT + 1) % test_agreement.COUNT
    return test_agreement.measure(rows[:20] if get_rank() else rows[20:])


def part(rng):
    """Return a rank's samples; some ranks have none, some have one twice."""
    ids = torch.from_numpy(rng.integers(0, 12, rng.integers(0, 9)))
    feats = torch.stack([ids, 10 * ids], 1) if len(ids) else ids.view(0, 0)
    return ids, feats.half(), ids + 7


def gather():
    found = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        found.append(gather_samples(*[part(rng), part(rng)][get_rank()]))
    return found


def predict():
    """Predict; each rank adds its images, and image 0 pads the second part."""
    maps, masks = test_in_context.maps_and_masks(5, 0)
    queries, _ = test_in_context.maps_and_masks(3, 1)
    world = torch.distributed.is_initialized()
    rank = get_rank()
    own = [0, 2, 4] if rank == 0 else [1, 3, 0]
    own = own if world else range(5)
    parts = (([i], maps[i : i + 1], masks[i : i + 1]) for i in own)
    bank = PatchBank(parts, test_in_context.CLASSES, 8, len(own), seed=3)
    mine = (queries[:2] if rank == 0 else queries[2:]) if world else queries
    found = [bank.predict(query[None], 5, 0.1) for query in mine]
    bank.serve(5)
    return torch.cat(found), bank.size, bank.missing()


def ids_of(kind, count):
    """Return the ids that each rank holds."""
    ids = torch.arange(count)
    if kind == 'shuffled':
        ids = torch.randperm(count, generator=torch.Generator().manual_seed(1))
    if kind == 'first rank empty':
        return [ids[:0], ids]
    if kind != 'uneven':
        ids = torch.cat([ids, ids[: count % 2]])  # as DefaultSampler does
    return [ids[rank::2] for rank in range(2)]


def search(kind):
    bank, query, labels = test_bank.images()
    rank = get_rank()
    own = ids_of(kind, len(bank))[rank]
    feats = bank[own] if len(own) else torch.empty(0, 0)
    sharded = ShardedBank(FeatureShard(own, feats, labels[own]))
    # One rank has many batches, the other a single one.
    mine = query[5:] if rank else query[:1]
    found = [sharded.search(batch, K) for batch in mine.split(2)]
    sharded.serve(K)
    found = [torch.cat(part) for part in zip(*found)]
    return (*found, len(sharded.feats), sharded.num_images)


def classify():
    """Return the nearest labels of three batches, all of them on one rank."""
    bank, query, labels = test_bank.images()
    own = ids_of('padded', len(bank))[get_rank()]
    ids = torch.arange(0 if get_rank() else 520)
    batches = knn_predictions(
        FeatureShard(own, bank[own], labels[own]),
        FeatureShard(ids, query[ids % 20], ids),
        knn_settings(1, 0.07),
    )
    return [
        sample['knn_pred']['k1'] for samples in batches for sample in samples
    ]


def measure():
    # Votes come last: a rank that has ended does not answer the other.
    found = [search(kind) for kind in KINDS]
    return agree(), gather(), predict(), found, classify()


@pytest.fixture(scope='module')
def ranks():
    """Return the results of both ranks for each part of :func:`measure`."""
    return [*zip(*run_processes(measure, 2))]


def test_agreement_of_neighbours(ranks):
    found = [sample for part in ranks[0] for sample in part]
    found = {sample['sample_idx']: sample['agreement'] for sample in found}
    found = [found[i] for i in range(test_agreement.COUNT)]
    assert found == pytest.approx(test_agreement.expected())


def test_features_are_joined(ranks):
    """Features are joined by sample index, whichever rank has the sample."""
    for found in ranks[1]:
        for seed, (ids, feats, labels) in enumerate(found):
            rng = np.random.default_rng(seed)
            first, second = part(rng), part(rng)
            expected = torch.cat((first[0], second[0])).unique()
            assert torch.equal(ids, expected)
            assert torch.equal(labels, expected + 7)
            assert feats.dtype == torch.float16
            assert feats.tolist() == [[i, 10 * i] for i in ids.tolist()]


def test_in_context_segmentation(ranks):
    (whole, size, _), (first, second) = predict(), ranks[2]
    assert first[1] == second[1] == size == 40
    assert torch.equal(torch.cat([first[0], second[0]]), whole)
    assert first[2] == second[2] == [3]


def test_neighbours_in_a_bank(ranks):
    bank, query, labels = test_bank.images()
    # A full stable sort without chunks; equal rows are in the order of ids.
    full = (query @ bank.T).sort(dim=1, descending=True, stable=True)
    assert (full.values[:, K - 1] == full.values[:, K]).any()
    for kind, *shards in zip(KINDS, *ranks[3]):
        for rank, (sims, ids, found_labels, rows, count) in enumerate(shards):
            mine = slice(5, None) if rank else slice(0, 1)
            assert torch.equal(sims, full.values[mine, :K])
            assert torch.equal(ids, full.indices[mine, :K])
            assert torch.equal(found_labels, labels[full.indices[mine, :K]])
            assert count == 53
            # its own part and no more
            assert rows <= (53 if kind == 'first rank empty' else 27)
        assert sum(found[3] for found in shards) == 53
    nearest = labels[full.indices[:, :1]].tolist()
    assert ranks[4] == (nearest * 26, [])
