# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import re
from collections import Counter

import pytest
import torch
from mmengine.dist import get_rank

from mmmoca.models import OnlineCodebook, RandomTokenSampler

from ..helpers.distributed import run_processes

NUM_WORDS = 3
BATCH_SIZES = [5, 2]


def draw(num_draws):
    """Return words whose entries tell where they come from.

    The entries are rank, micro-batch, view, and place among the candidates.
    """
    candidates = [
        torch.cartesian_prod(
            torch.tensor([get_rank()]),
            torch.tensor([micro_batch]),
            torch.arange(2),
            torch.arange(min(NUM_WORDS, size)),
        )
        .view(2, -1, 4)
        .float()
        for micro_batch, size in enumerate(BATCH_SIZES)
    ]
    draws = []
    for seed in range(num_draws):
        generator = torch.Generator().manual_seed(seed)
        arguments = candidates, BATCH_SIZES, NUM_WORDS, generator
        draws.append(RandomTokenSampler().pick(*arguments))
    return torch.stack(draws)


def test_candidates():
    """Candidates are unit tokens of different images, from inner patches."""
    codebook = OnlineCodebook(2, (4, 4), num_words=4, border=1)
    # The direction tells view and image; tokens of the border are zero.
    angle = torch.arange(20.0).view(2, 10) / 7
    unit = torch.stack((angle.cos(), angle.sin()), dim=-1)
    tokens = torch.zeros(2, 10, 16, 2)
    tokens[:, :, codebook.inner] = unit[:, :, None] * torch.tensor(3.0)
    seen = set()
    for _ in range(50):
        candidates = codebook.draw_candidates(tokens.flatten(0, 1))
        distances = (unit[:, None] - candidates[:, :, None]).norm(dim=-1)
        nearest, images = distances.min(dim=-1)  # (2, 4) each
        assert nearest.max() < 1e-5
        assert torch.equal(*images) and len(images.unique()) == 4
        seen |= set(images[0].tolist())
    assert seen == set(range(10))
    few = codebook.draw_candidates(tokens[:, :3].flatten(0, 1))
    assert few.shape == (2, 3, 2)


@pytest.mark.parametrize('shape', [(2, 4), (2, 4, 1), (3, 4, 2), (2, 9, 2)])
def test_vectors_of_another_shape(monkeypatch, shape):
    """PyTorch would broadcast a number over a word."""
    codebook = OnlineCodebook(2, (4, 4), num_words=4, border=1)
    sampler = codebook.word_sampler
    monkeypatch.setattr(sampler, 'describe', lambda *_: torch.ones(shape))
    with pytest.raises(ValueError, match=re.escape(str(shape))):
        codebook.draw_candidates(torch.ones(8, 16, 2))
    with pytest.raises(ValueError, match='pick'):
        codebook.update(torch.ones(3, 1), torch.ones(2))


@pytest.mark.processes
def test_words_are_drawn_from_the_global_batch():
    num_draws = 400
    first, second = run_processes(draw, 2, num_draws)
    assert torch.equal(first, second), 'ranks drifted apart'
    sources, views = Counter(), Counter()
    for words in first.int().tolist():
        assert len({view for *_, view, _ in words}) == 1
        views[words[0][2]] += 1
        taken = Counter()
        for rank, micro_batch, _, place in words:
            # Candidates are used in their order, and none of them twice.
            assert place == taken[rank, micro_batch]
            taken[rank, micro_batch] += 1
        sources += taken
    assert abs(views[0] - views[1]) < 0.1 * num_draws
    assert len(sources) == 2 * len(BATCH_SIZES)
    for (_, micro_batch), count in sources.items():
        share = BATCH_SIZES[micro_batch] / (2 * sum(BATCH_SIZES))
        expected = NUM_WORDS * num_draws * share
        assert count == pytest.approx(expected, rel=0.2)
