# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Agreement of neighbours equals a computation with Python's sets."""

import pytest
import torch
from torch.nn.functional import normalize

from mmmoca.evaluation import neighbour_agreement
from mmmoca.evaluation.features import FeatureShard
from tests.helpers.judges import agreement_judge

COUNT, K = 61, 4


def _views():
    """Return two similar views of each image, side by side."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(COUNT, 8, generator=generator)
    second = first + 0.5 * torch.randn(COUNT, 8, generator=generator)
    return torch.cat([normalize(first), normalize(second)], dim=1)


def measure(rows):
    shard = FeatureShard(rows, _views()[rows], -torch.ones_like(rows))
    return neighbour_agreement(shard, K)


def expected():
    return agreement_judge(_views().chunk(2, dim=1), K)


def test_is_the_mean_jaccard_index():
    found = measure(torch.arange(COUNT))
    assert [sample['sample_idx'] for sample in found] == [*range(COUNT)]
    values = [sample['agreement'] for sample in found]
    assert values == pytest.approx(expected())
    assert 0.1 < sum(values) / COUNT < 0.9


def test_equal_images_are_neighbours_but_none_of_itself():
    """Among copies, an image's own view need not come first."""
    views = torch.ones(40, 6) / 3**0.5
    rows = torch.arange(40)
    found = neighbour_agreement(FeatureShard(rows, views, rows), k=3)
    assert all(sample['agreement'] == 1 for sample in found)
    # With few images, a tenth of them are neighbours.
    few = torch.arange(15)
    found = neighbour_agreement(FeatureShard(few, _views()[few], few))
    assert {sample['agreement'] for sample in found} == {0.0, 1.0}
