# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What hooks have in common: seeds, and who moves which state."""

import itertools

import pytest

from mmmoca.engine import CodebookHook, StepLogHook, TeacherEMAHook
from mmmoca.engine.steps import mix_seed

from ..helpers.runs import demo_runner


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
