# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import itertools

import pytest
from mmengine.dataset import ConcatDataset, RepeatDataset

from mmmoca.datasets import (
    ClassBalancedDataset,
    ImageFolder,
    ResumableBatchSampler,
    SeededSampler,
)


def order(monkeypatch, ranks, skip=0, epoch=0, **options):
    """The samples of all ranks in turn, those of 2.5 epochs at most."""
    parts = []
    for rank in range(ranks):
        name = 'mmengine.dataset.sampler.get_dist_info'
        monkeypatch.setattr(name, lambda rank=rank: (rank, ranks))
        sampler = SeededSampler(range(10_000), seed=3, **options)
        sampler.set_epoch(epoch)
        sampler.skip(skip // ranks)
        part = itertools.islice(sampler, (25_000 - skip) // ranks)
        parts.append([(int(i), i.seed) for i in part])
        if not sampler.infinite:
            assert len(parts[-1]) == len(sampler) - skip // ranks
    return [sample for step in zip(*parts) for sample in step]


@pytest.mark.parametrize('ranks', [2, 3])
def test_order_and_seeds_do_not_depend_on_the_ranks(monkeypatch, ranks):
    alone = order(monkeypatch, 1)
    assert sorted(i for i, _ in alone) == list(range(10_000))
    (first, _), *_ = order(monkeypatch, 1, epoch=1)
    assert first != alone[0][0]
    # Some come twice at the end for a number that the ranks do not divide.
    assert order(monkeypatch, ranks)[:10_000] == alone
    assert order(monkeypatch, ranks, 6000)[:4000] == alone[6000:]
    last = 10_000 // ranks * ranks
    assert order(monkeypatch, ranks, drop_last=True) == alone[:last]
    endless = order(monkeypatch, 1, infinite=True)
    found = order(monkeypatch, ranks, 6000, infinite=True)
    assert found == endless[6000 : 6000 + len(found)] and len(found) > 18_000
    found = order(monkeypatch, ranks, 24_000, infinite=True)
    assert found[0] == endless[24_000]


def test_wrapped_data_sets_keep_the_seeds(root):
    places = root / 'val' / 'class_0', root / 'val' / 'class_1'
    parts = [ImageFolder(str(place), with_label=False) for place in places]
    parts[0].get_cat_ids = lambda index: [index]
    for dataset in (
        ConcatDataset(parts),
        RepeatDataset(parts[0], 2),
        ClassBalancedDataset(parts[0], 1),
    ):
        assert len(dataset) > 2
        for index in SeededSampler(dataset, seed=3):
            assert dataset[index]['sample_idx'].seed == index.seed


class Sizes(list):
    """A data set of sizes, as mmdet's batch sampler asks for them."""

    def get_data_info(self, index):
        width, height = self[index]
        return dict(width=width, height=height)


@pytest.mark.ops
def test_grouped_batches_are_skipped():
    """Some images of the batches before are held back."""
    sizes = Sizes([(1, 2), (2, 1), (2, 1)] * 4)

    def batches(skip):
        sampler = ResumableBatchSampler(
            SeededSampler(sizes, seed=3),
            batch_size=3,
            batch_sampler=dict(type='mmdet.AspectRatioBatchSampler'),
        )
        sampler.skip(skip)
        iter(sampler)  # as a loader with workers does
        seen = [[(int(i), i.seed) for i in batch] for batch in sampler]
        assert len(list(sampler)) == len(sampler) == 4
        return seen

    whole = batches(0)
    assert sorted(i for batch in whole for i, _ in batch) == list(range(12))
    # They are not the batches of the order itself.
    alone = [int(i) for i in SeededSampler(sizes, seed=3)]
    assert [i for batch in whole for i, _ in batch] != alone
    for skip in range(1, 5):
        assert batches(skip) == whole[skip:]
