# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Lists of images without an object for each."""

import copy
import pickle
import tracemalloc

import numpy as np
import pytest

from mmmoca.datasets import ImageFolder, SeededSampler
from mmmoca.datasets.image_set import ImageSet
from mmmoca.datasets.listing import FolderListing
from mmmoca.datasets.samples import Samples, Texts, sort_texts

# One that is no UTF-8, as the file system gives it; one beyond 16 bits.
NAMES = ['b/ä.png', 'a.jpg', 'a/b.jpg', 'a-b', '\udc80', '\ue000', '😀', '']


def test_texts_are_a_list_of_strings():
    texts = Texts(NAMES)
    texts.extend(Texts(NAMES))
    texts.extend(iter(['last']))
    expected = [*NAMES, *NAMES, 'last']
    for same in (
        texts,
        Texts.unpacked(*texts.packed()),
        pickle.loads(pickle.dumps(texts)),
    ):
        assert list(same) == expected
        assert [same[i] for i in range(-17, 17)] == expected * 2
        with pytest.raises(IndexError):
            same[17]


@pytest.mark.parametrize('run', [1, 3, 100])
def test_any_number_is_sorted_as_python_does(run):
    names = [name + end for name in NAMES for end in ('', '/x', '.x', '€')]
    assert list(sort_texts(names, run)) == sorted(names)


def test_subsets_share_what_they_are_made_from():
    samples = Samples(Texts('abcdef'), np.arange(6))
    expected = [dict(img_path=c, gt_label=i) for i, c in enumerate('abcdef')]
    assert list(samples) == expected and samples[-1] == expected[-1]
    part = samples[1:5][np.array([3, 0])]
    assert list(part) == [expected[4], expected[1]]
    assert part.labels.tolist() == [4, 1]
    assert copy.deepcopy(part) is part
    assert list(Samples(Texts('ab'))[1:]) == [dict(img_path='b')]


@pytest.fixture
def listed(monkeypatch):
    """A folder of 100 classes; its files are names only."""

    def names(self, path, list_dir=True, list_file=True, **_):
        if not list_file:
            return (f'n{i:08}' for i in range(100))
        return (f'n{i:08}_{i:06}.JPEG' for i in reversed(range(200)))

    monkeypatch.setattr(FolderListing, 'list_dir_or_file', names)
    monkeypatch.setattr(ImageSet, '_check_readable', lambda *_: None)

    def build(**options):
        return ImageFolder('/', pipeline=[], **options)

    return build


def test_an_image_takes_a_few_dozen_bytes(listed):
    tracemalloc.start()
    try:
        dataset = listed()
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(dataset) == 20_000
    # 35 of the name, 8 of its place, 8 of the label; a buffer that grows.
    assert kept < 70 * len(dataset) and peak < 100 * len(dataset)


def test_subsets_of_mmengine(listed):
    whole = listed()
    labels = np.arange(20_000) // 200
    assert (whole.get_gt_labels() == labels).all()
    some = [5, 19_999, 5]
    for indices, expected in (
        (300, labels[:300]),
        (-300, labels[-300:]),
        (some, labels[some]),
    ):
        inplace = listed()
        inplace.get_subset_(indices)
        for part in (
            listed(indices=indices),
            whole.get_subset(indices),
            inplace,
        ):
            assert part.get_gt_labels().tolist() == expected.tolist()
            assert part.get_cat_ids(1) == [expected[1]]
            assert part.get_data_info(-1)['sample_idx'] == len(expected) - 1
    assert len(whole) == 20_000


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
