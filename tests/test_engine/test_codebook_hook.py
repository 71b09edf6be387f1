# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""When the codebook is updated, and from which images."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from mmmoca.engine import CodebookHook
from mmmoca.engine.steps import mix_seed
from mmmoca.models import CodebookUpdate, OnlineCodebook

from ..helpers.runs import NO_VALIDATION, by_epochs, demo_runner

BATCH = 'train_dataloader.batch_size'
MICRO_BATCHES = 'optim_wrapper.accumulative_counts'
KEEP_LAST = {'train_dataloader.drop_last': False}
# A run by iterations is endless, even if the config says otherwise.
ENDLESS = {'train_dataloader.sampler.infinite': False}


@pytest.mark.parametrize(
    ('enough', 'options'),
    [
        # 48 images leave 3 for the last batch of an epoch.
        (False, {BATCH: 15} | KEEP_LAST | by_epochs(1)),
        # Without epochs, no batch is smaller.
        (True, {BATCH: 15, 'train_cfg.max_iters': 1} | KEEP_LAST | ENDLESS),
        # Batches of 47 leave 1 image; a step has two batches.
        (True, {BATCH: 47, MICRO_BATCHES: 2} | KEEP_LAST | by_epochs(1)),
        # 9 micro-batches of 2, four to a step: the last step has one.
        (False, {BATCH: 2, MICRO_BATCHES: 4, 'train_cfg.max_iters': 9}),
    ],
)
@pytest.mark.slow
def test_images_of_a_step(root, tmp_path, enough, options):
    options = NO_VALIDATION | options | {'work_dir': str(tmp_path)}
    runner = demo_runner(root, 'steps', **options)
    refused = pytest.raises(ValueError, match='num_new_words')
    with nullcontext() if enough else refused:
        runner.train()


def test_micro_batches_survive_the_next_forward_pass():
    """CUDA graphs overwrite the memory of the previous forward pass."""
    codebook = OnlineCodebook(
        4, (4, 4), num_words=8, num_new_words=4, border=1, centre=0.9
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
    memory = dict(
        candidates=torch.empty(2, 4, 4),
        msd=torch.empty(2),
        token_mean=torch.empty(16, 4),
    )
    for step.count in (1, 2):
        for value in memory.values():
            value.fill_(step.count)
        memory['candidates'][1] += 10  # of the second view
        memory['candidates'][..., 0] = 1
        update = CodebookUpdate(**memory, batch_size=4)
        hook.after_train_iter(runner, outputs=dict(codebook_update=update))
    assert float(codebook.msd) == pytest.approx(
        0.99 * (0.99 * 0.5 + 0.01 * 1.5) + 0.01 * 1.5
    )
    torch.testing.assert_close(
        codebook.token_mean, torch.full((16, 4), 0.1 * 1.5)
    )
    # The draw depends on the run's seed and the step: first a view, then
    # images.
    generator = torch.Generator().manual_seed(mix_seed(0, 1))
    view = torch.randint(2, (), generator=generator)
    images = torch.randperm(8, generator=generator)[:4]
    expected = 1 + images // 4 + 10 * view
    found = codebook.words[:4, 1] / codebook.words[:4, 0]
    torch.testing.assert_close(found, expected.float())
