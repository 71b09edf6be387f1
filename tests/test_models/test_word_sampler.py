# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections import Counter

import pytest
import torch
from mmengine.dist import get_rank

from mmmoca.models import OnlineCodebook, RandomTokenSampler

from ..distributed import run_processes

NUM_WORDS = 3
BATCH_SIZES = [5, 2]


def draw(num_draws):
    """Words whose entries tell where they come from.

    (rank, micro-batch, view, place in the candidates' order).
    """
    candidates = [
        torch.tensor(
            [
                [
                    [get_rank(), micro_batch, view, place]
                    for place in range(min(NUM_WORDS, size))
                ]
                for view in range(2)
            ],
            dtype=torch.float32,
        )
        for micro_batch, size in enumerate(BATCH_SIZES)
    ]
    draws = []
    for seed in range(num_draws):
        generator = torch.Generator().manual_seed(seed)
        arguments = candidates, BATCH_SIZES, NUM_WORDS, generator
        draws.append(RandomTokenSampler().pick(*arguments))
    return torch.stack(draws)


def test_candidates():
    """Unit tokens of different images, from the inner patches."""
    codebook = OnlineCodebook(2, (4, 4), num_words=4, border=1)
    # Direction tells view and image, length would tell the patch.
    angle = torch.arange(20.0).view(2, 10) / 7
    unit = torch.stack((angle.cos(), angle.sin()), dim=-1)
    tokens = unit[:, :, None] * torch.arange(1.0, 17.0)[:, None]
    tokens[:, :, [0, 1, 2, 3, 4, 7, 8, 11, 12, 13, 14, 15]] = 0
    seen = set()
    for _ in range(50):
        candidates = codebook.draw_candidates(tokens.flatten(0, 1))
        images = [
            (unit[view] - word).norm(dim=1).argmin().item()
            for view in range(2)
            for word in candidates[view]
        ]
        torch.testing.assert_close(
            candidates.flatten(0, 1),
            torch.cat((unit[0, images[:4]], unit[1, images[4:]])),
        )
        assert images[:4] == images[4:] and len(set(images[:4])) == 4
        seen |= set(images)
    assert seen == set(range(10))
    few = codebook.draw_candidates(tokens[:, :3].flatten(0, 1))
    assert few.shape == (2, 3, 2)


@pytest.mark.parametrize(
    'world_size',
    [1, *(pytest.param(n, marks=pytest.mark.processes) for n in (2, 3))],
)
def test_words_are_drawn_from_the_global_batch(world_size):
    num_draws = 800
    results = run_processes(draw, world_size, num_draws)
    for result in results[1:]:
        assert torch.equal(result, results[0]), 'ranks drifted apart'
    sources, views = Counter(), Counter()
    for words in results[0].int().tolist():
        assert len({view for *_, view, _ in words}) == 1
        views[words[0][2]] += 1
        taken = Counter()
        for rank, micro_batch, _, place in words:
            # Candidates are used in their order, none of them twice.
            assert place == taken[rank, micro_batch]
            taken[rank, micro_batch] += 1
            sources[rank, micro_batch] += 1
    assert abs(views[0] - views[1]) < 0.1 * num_draws
    images = world_size * sum(BATCH_SIZES)
    for rank in range(world_size):
        for micro_batch, size in enumerate(BATCH_SIZES):
            share = sources[rank, micro_batch] / (NUM_WORDS * num_draws)
            assert share == pytest.approx(size / images, rel=0.2)


def test_fewer_images_than_words():
    generator = torch.Generator().manual_seed(0)
    with pytest.raises(ValueError, match='step of 2 images cannot give 3 new'):
        RandomTokenSampler().pick([torch.ones(2, 2, 4)], [2], 3, generator)
