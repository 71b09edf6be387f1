# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import numpy as np
import pytest

from ..helpers.runs import NO_VALIDATION, demo_runner, scalars


def build(root, name):
    options = {
        'train_cfg.max_iters': 6,
        'default_hooks.checkpoint.interval': 6,
        'default_hooks.logger.interval': 3,
    }
    return demo_runner(root, name, **options | NO_VALIDATION)


def test_effective_rank_at_each_log_line(root):
    runner = build(root, 'rank')
    encode, ranks = runner.model.encode_teacher, []

    def note(views):
        tokens = encode(views)
        values = np.linalg.svd(tokens.mean(1).numpy(), compute_uv=False)
        p = values / values.sum()
        ranks.append(np.exp(-(p * np.log(p)).sum()))
        return tokens

    runner.model.encode_teacher = note
    runner.train()
    assert len(ranks) == 6
    found = scalars(runner, 'train/rank_me')
    assert found.tolist() == pytest.approx(ranks[2::3], rel=1e-3)


def test_it_needs_a_codebook(root):
    """In any order of a config: a dumped one is sorted by name."""
    runner = build(root, 'order')
    kinds = [type(hook).__name__ for hook in runner.hooks]
    assert kinds.index('RankMeHook') < kinds.index('CodebookHook')
    del runner.hooks[kinds.index('CodebookHook')]
    with pytest.raises(ValueError, match='without a codebook'):
        runner.train()
