# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import pytest
from mmengine.dataset import ConcatDataset, RepeatDataset

from mmmoca.datasets import ImageFolder, SeededSampler

from .test_image_folder import write


@pytest.mark.parametrize('ranks', [2, 3])
def test_order_and_seeds_do_not_depend_on_the_ranks(ranks):
    def batches(ranks, skip, epoch=0):
        parts = []
        for rank in range(ranks):
            sampler = SeededSampler(range(10_000), seed=3)
            sampler.rank, sampler.world_size = rank, ranks
            sampler.total_size = -(-10_000 // ranks) * ranks
            sampler.set_epoch(epoch)
            sampler.skip(skip // ranks)
            parts.append([(int(i), i.seed) for i in sampler])
        return [sample for step in zip(*parts) for sample in step]

    alone = batches(1, 0)
    assert sorted(i for i, _ in alone) == list(range(10_000))
    (first, _), *_ = batches(1, 0, epoch=1)
    assert first != alone[0][0]
    # Some come twice at the end for a number that the ranks do not divide.
    assert batches(ranks, 0)[:10_000] == alone
    assert batches(ranks, 6000)[:4000] == alone[6000:]


def test_wrapped_data_sets_keep_the_seeds(tmp_path):
    for name in ('a/0.png', 'a/1.png', 'b/0.png'):
        write(tmp_path / name)
    parts = [
        ImageFolder(str(tmp_path / name), with_label=False) for name in 'ab'
    ]
    for dataset in (ConcatDataset(parts), RepeatDataset(parts[0], 2)):
        for index in SeededSampler(dataset, seed=3):
            assert dataset[index]['sample_idx'].seed == index.seed
