# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Processes share seeds, images and draws."""

import itertools

import pytest
import torch
from mmengine.runner import Runner

from mmmoca.engine.steps import mix_seed
from mmmoca.models import RandomTokenSampler

from ..helpers.distributed import run_processes
from ..helpers.runs import by_epochs, demo_runner


def test_no_two_draws_share_a_seed():
    numbers = [
        part
        for length in (1, 2, 3)
        for part in itertools.product((0, 1, 7), repeat=length)
    ]
    seeds = {mix_seed(*part) for part in numbers}
    assert len(seeds) == len(numbers)
    assert all(0 <= seed < 2**63 for seed in seeds)


def train(root):
    """Return an epoch's images, codebook seeds and generator states."""
    seeds = dict(randomness=dict(seed=0, diff_rank_seed=True))
    with pytest.raises(ValueError, match='diff_rank_seed'):
        demo_runner(root, 'other_seeds', **seeds).train()
    images, draws, noise = [], [], []
    pick, step = RandomTokenSampler.pick, Runner.call_hook

    def record_draw(*args):
        draws.append(args[-1].initial_seed())
        return pick(*args)

    def record_batch(self, name, **kwargs):
        step(self, name, **kwargs)
        if name == 'before_train_iter':
            samples = kwargs['data_batch']['data_samples']
            images.extend(int(sample.sample_idx) for sample in samples)
            noise.append(torch.get_rng_state().sum().item())

    # patched in this process only
    RandomTokenSampler.pick = record_draw
    Runner.call_hook = record_batch
    demo_runner(root, 'seeds', **by_epochs(1)).train()
    return images, draws, noise


@pytest.mark.processes
def test_processes_share_the_images_and_the_words(root):
    """Processes share images and words; different seeds are refused."""
    first, second = run_processes(train, 2, root)
    # Each image occurs once in the whole epoch.
    assert sorted(first[0] + second[0]) == list(range(48))
    # All processes draw the same words, new ones in each step.
    assert first[1] == second[1] and len(set(first[1])) == 6
    # Masks and crops differ.
    assert not set(first[2]) & set(second[2])
