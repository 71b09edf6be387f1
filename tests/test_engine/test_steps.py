# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What hooks have in common: seeds, and who moves which state."""

import itertools
from multiprocessing import active_children
from pathlib import Path

import pytest

from mmmoca.engine import CodebookHook, StepLogHook, TeacherEMAHook
from mmmoca.engine.steps import mix_seed, stop_workers

from ..helpers.runs import demo_runner, scalars


def test_no_two_draws_share_a_seed():
    numbers = [
        part
        for length in (1, 2, 3)
        for part in itertools.product((0, 1, 7), repeat=length)
    ]
    seeds = {mix_seed(*part) for part in numbers}
    assert len(seeds) == len(numbers)
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize(
    ('kind', 'other', 'count'),
    [(CodebookHook, TeacherEMAHook, 0), (TeacherEMAHook, CodebookHook, 2)],
)
def test_hooks_that_move_a_state_never_or_twice(root, kind, other, count):
    """The runner refuses it before its training."""
    runner = demo_runner(root, 'refused')
    runner._hooks = []
    for hook in [StepLogHook, other, *[kind] * count]:
        runner.register_hook(hook())
    with pytest.raises(ValueError, match=f'{kind.__name__} .* has {count}'):
        runner.train()


def test_no_worker_outlives_a_run(root):
    """PyTorch would wait for each when a program on a GPU ends."""
    loader = dict(num_workers=1, persistent_workers=True)
    parts = 'train_dataloader', 'val_dataloader', 'val_cfg.bank_dataloader'
    options = {f'{part}.{k}': v for part in parts for k, v in loader.items()}
    options |= {'train_cfg.max_iters': 1, 'train_cfg.val_interval': 1}
    runner = demo_runner(
        root, 'workers', runner_type='mmmoca.ConsoleRunner', **options
    )
    runner.train()
    assert scalars(runner, 'val/knn/top1_k20').size == 1
    assert active_children() == []
    assert next(iter(runner.train_dataloader))
    stop_workers(runner)


def test_a_run_after_a_refused_one_of_its_name(root):
    """As when both start within a second, which is a part of the name."""
    kind = dict(runner_type='mmmoca.ConsoleRunner', experiment_name='same')
    with pytest.raises(ValueError, match='tap_layer'):
        demo_runner(root, 'same', **kind, **{'model.backbone.tap_layer': 99})
    runner = demo_runner(root, 'same', **kind)
    assert len([*Path(runner.log_dir).rglob('*.*')]) == 2  # log and config
