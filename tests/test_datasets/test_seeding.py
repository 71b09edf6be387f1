# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import itertools
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mmengine.dataset import ConcatDataset, RepeatDataset

from mmmoca.datasets import (
    ClassBalancedDataset,
    ImageFolder,
    ResumableBatchSampler,
    SeededSampler,
)


def order(size, ranks=1, skip=0, epoch=0, count=None, **options):
    """Return the samples of all ranks in turn, without the skipped ones.

    Each sample comes with the seed of its views.
    """
    parts = []
    for rank in range(ranks):
        place = mock.patch(
            'mmengine.dataset.sampler.get_dist_info',
            lambda rank=rank: (rank, ranks),
        )
        with place:
            sampler = SeededSampler(range(size), **options)
        sampler.set_epoch(epoch)
        sampler.skip(skip)
        part = [(int(i), i.seed) for i in itertools.islice(sampler, count)]
        assert sampler.infinite or len(part) == len(sampler) - skip
        parts.append(part)
    return [sample for step in zip(*parts, strict=True) for sample in step]


@pytest.mark.slow
@given(
    size=st.integers(1, 50),
    ranks=st.integers(1, 5),
    seed=st.integers(0, 99),
    epoch=st.integers(0, 3),
    skip=st.integers(0, 99),
    drop_last=st.booleans(),
)
@example(size=10_000, ranks=3, seed=3, epoch=0, skip=1500, drop_last=False)
def test_order_and_seeds_do_not_depend_on_ranks(
    size, ranks, seed, epoch, skip, drop_last
):
    """The order also does not depend on where a run was stopped."""
    alone = order(size, seed=seed, epoch=epoch)
    assert sorted(i for i, _ in alone) == list(range(size))
    each = size // ranks if drop_last else -(-size // ranks)
    # If the ranks do not divide the number of samples, some repeat at the end.
    whole = [alone[i % size] for i in range(each * ranks)]
    options = dict(seed=seed, drop_last=drop_last)
    skipped = min(skip, each)
    found = order(size, ranks, skipped, epoch, **options)
    assert found == whole[skipped * ranks :]
    # An endless sampler starts the next epoch at once, for any number of
    # ranks.
    number = 20 + ranks * skip // size
    endless = [
        sample
        for part in range(epoch, epoch + number)
        for sample in order(size, seed=seed, epoch=part)
    ]
    endless = endless[skip * ranks :]
    count = min(len(endless) // ranks, 3 * size)
    options |= dict(infinite=True, count=count)
    found = order(size, ranks, skip, epoch, **options)
    assert found == endless[: len(found)] and len(found) == count * ranks


def test_epochs_and_seeds_differ():
    orders = [order(50, seed=s, epoch=e) for s in range(3) for e in range(3)]
    assert len({tuple(one) for one in orders}) == 9
    epochs = [order(50, seed=1, epoch=epoch) for epoch in range(3)]
    assert len({tuple(index for index, _ in one) for one in epochs}) == 3


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
    with pytest.raises(TypeError):
        ClassBalancedDataset(ConcatDataset(parts), 1)


class Sizes(list):
    """A data set that gives sizes, as mmdet's batch sampler requires."""

    def get_data_info(self, index):
        width, height = self[index]
        return dict(width=width, height=height)


@pytest.mark.ops
def test_grouped_batches_are_skipped():
    """The sampler holds back some images of earlier batches."""
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
    # These batches are not consecutive parts of the order.
    alone = [int(i) for i in SeededSampler(sizes, seed=3)]
    assert [i for batch in whole for i, _ in batch] != alone
    for skip in range(1, 5):
        assert batches(skip) == whole[skip:]
