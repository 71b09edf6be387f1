# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from mmengine.dist import get_rank

from mmmoca.engine import CodebookHook
from mmmoca.engine.hooks.codebook_hook import pick_new_words
from mmmoca.engine.steps import mix_seed
from mmmoca.models import OnlineCodebook

from ..distributed import run_processes

NUM_WORDS = 3
BATCH_SIZES = [5, 2]


def draw(num_draws):
    """Words whose entries tell where they come from.

    (rank, micro-batch, view, place in the candidates' order).
    """
    candidates = []
    for micro_batch, size in enumerate(BATCH_SIZES):
        places = min(NUM_WORDS, size)
        candidates.append(
            torch.tensor(
                [
                    [
                        [get_rank(), micro_batch, view, place]
                        for place in range(places)
                    ]
                    for view in range(2)
                ],
                dtype=torch.float32,
            )
        )
    return torch.stack(
        [
            pick_new_words(
                candidates,
                BATCH_SIZES,
                NUM_WORDS,
                torch.Generator().manual_seed(seed),
            )
            for seed in range(num_draws)
        ]
    )


def test_micro_batches_survive_the_next_forward_pass():
    """CUDA graphs replay into the memory of the step before."""
    codebook = OnlineCodebook(
        4, (4, 4), num_words=8, num_new_words=2, border=1
    )
    step = SimpleNamespace(count=0)
    runner = SimpleNamespace(
        model=SimpleNamespace(codebook=codebook),
        optim_wrapper=SimpleNamespace(
            should_update=lambda: step.count == 2, _accumulative_counts=2
        ),
        seed=0,
        iter=1,
    )
    hook = CodebookHook()
    memory = dict(candidates=torch.empty(2, 2, 4), msd=torch.empty(2))
    for step.count in (1, 2):
        for value in memory.values():
            value.fill_(step.count)
        update = dict(memory, batch_size=2)
        hook.after_train_iter(runner, 0, None, dict(codebook_update=update))
    assert float(codebook.msd) == pytest.approx(
        0.99 * (0.99 * 0.5 + 0.01 * 1.5) + 0.01 * 1.5
    )
    images = torch.randperm(4, generator=generator_of_step(0, 1))[:2]
    assert codebook.words[:2, 0].tolist() == (1 + images // 2).tolist()


def generator_of_step(seed, step):
    """After it has drawn the view."""
    generator = torch.Generator().manual_seed(mix_seed(seed, step))
    torch.randint(2, (), generator=generator)
    return generator


@pytest.mark.parametrize(
    'world_size',
    [1, *(pytest.param(n, marks=pytest.mark.processes) for n in (2, 3))],
)
def test_words_are_drawn_from_the_global_batch(world_size):
    num_draws = 800
    if world_size == 1:
        results = [draw(num_draws)]
    else:
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
