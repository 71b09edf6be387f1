# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import pytest

from mmmoca.datasets import SeededSampler


@pytest.mark.parametrize('ranks', [2, 3])
def test_order_and_seeds_do_not_depend_on_the_ranks(ranks):
    def batches(ranks, skip):
        parts = []
        for rank in range(ranks):
            sampler = SeededSampler(range(10_000), seed=3)
            sampler.rank, sampler.world_size = rank, ranks
            sampler.total_size = -(-10_000 // ranks) * ranks
            sampler.skip(skip // ranks)
            parts.append([(int(i), i.seed) for i in sampler])
        return [sample for step in zip(*parts) for sample in step]

    alone = batches(1, 0)
    assert sorted(i for i, _ in alone) == list(range(10_000))
    # Some come twice at the end for a number that the ranks do not divide.
    assert batches(ranks, 0)[:10_000] == alone
    assert batches(ranks, 6000)[:4000] == alone[6000:]
