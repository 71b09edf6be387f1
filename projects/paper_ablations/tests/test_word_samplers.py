# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Alternatives to random tokens as new words, on one and two processes."""

import pytest
import torch
from mmengine.dist import get_rank
from torch.nn import functional as F

from mmmoca.models import OnlineCodebook
from projects.paper_ablations.word_samplers import (
    FarthestPointSampler,
    farthest_points,
)
from tests.helpers.distributed import run_processes

NUM_WORDS = 4
BATCH_SIZES = [5, 3]


def codebook_with(sampler):
    """Build a codebook for 4 x 5 patches, six of them inner; K_new is 4."""
    word_sampler = dict(type=f'mmmoca.{sampler}')
    return OnlineCodebook(
        6, (4, 5), num_words=8, border=1, word_sampler=word_sampler
    )


def test_average_token():
    codebook = codebook_with('AverageTokenSampler')
    tokens = torch.randn(2 * 9, 20, 6)
    candidates = codebook.draw_candidates(tokens)
    assert candidates.shape == (2, 4, 6)
    inner = [6, 7, 8, 11, 12, 13]
    means = F.normalize(tokens[:, inner].mean(dim=1), dim=1).view(2, 9, 6)
    similarity = candidates @ means.mT  # (2, 4, 9)
    found = similarity.argmax(dim=2)
    torch.testing.assert_close(similarity.amax(dim=2), torch.ones(2, 4))
    # Both views take candidates from the same four images, one from each.
    assert found[0].tolist() == found[1].tolist()
    assert len(set(found[0].tolist())) == 4


def brute_force(points, first, number):
    """Keep adding the point that is farthest from its nearest chosen point."""
    found = [first]
    while len(found) < number:
        left = [i for i in range(len(points)) if i not in found]
        reach = [
            min((points[i] - points[j]).norm().item() for j in found)
            for i in left
        ]
        found.append(left[max(range(len(left)), key=reach.__getitem__)])
    return points[found]


@pytest.mark.parametrize('number', [1, 4, 30])
def test_farthest_points(number):
    points = F.normalize(torch.randn(30, 5, dtype=torch.float64), dim=1)
    expected = brute_force(points, 7, number)
    assert torch.equal(farthest_points(points, 7, number), expected)


def pool_of(rank):
    """Return a process's candidates, (2, B, 6) for each micro-batch."""
    generator = torch.Generator().manual_seed(rank)
    return [
        F.normalize(torch.randn(2, size, 6, generator=generator), dim=2)
        for size in BATCH_SIZES
    ]


def pick():
    candidates = pool_of(get_rank())
    words = []
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        arguments = candidates, BATCH_SIZES, NUM_WORDS, generator
        words.append(FarthestPointSampler().pick(*arguments))
    return torch.stack(words)


@pytest.mark.processes
def test_farthest_points_of_the_global_batch():
    results = run_processes(pick, 2)
    assert all(torch.equal(words, results[0]) for words in results)
    views = set()
    for seed, words in enumerate(results[0]):
        generator = torch.Generator().manual_seed(seed)
        view = int(torch.randint(2, (), generator=generator))
        parts = [*pool_of(0), *pool_of(1)]
        pool = torch.cat([part[view] for part in parts])
        first = int(torch.randint(len(pool), (), generator=generator))
        torch.testing.assert_close(
            words, brute_force(pool, first, NUM_WORDS), rtol=0, atol=0
        )
        views.add(view)
    assert views == {0, 1}


def test_every_image_offers_a_token():
    codebook = codebook_with('FarthestPointSampler')
    candidates = codebook.draw_candidates(torch.randn(2 * 9, 20, 6))
    assert candidates.shape == (2, 9, 6)
