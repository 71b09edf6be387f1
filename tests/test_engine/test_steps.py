# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What hooks have in common: seeds, and who moves which state."""

import itertools

import pytest
from mmengine.config import Config

from mmmoca.engine import CodebookHook, StepLogHook, TeacherEMAHook
from mmmoca.engine.steps import mix_seed

from ..images import DEMO_CONFIG
from ..runs import demo_runner


def test_no_two_draws_share_a_seed():
    numbers = [
        part
        for length in (1, 2, 3)
        for part in itertools.product((0, 1, 7), repeat=length)
    ]
    seeds = {mix_seed(*part) for part in numbers}
    assert len(seeds) == len(numbers)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_hooks_that_move_a_state_never_or_twice(root):
    """The runner refuses it before its training."""
    runner = demo_runner(root, 'refused')
    for kind, other, count in (
        (CodebookHook, TeacherEMAHook, 0),
        (TeacherEMAHook, CodebookHook, 2),
    ):
        runner._hooks = []
        for hook in [StepLogHook, other, *[kind] * count]:
            runner.register_hook(hook())
        message = f'{kind.__name__} .* has {count}'
        with pytest.raises(ValueError, match=message):
            runner.call_hook('before_run')


def test_order_of_the_list_does_not_matter(root):
    """The codebook's update must be taken before scalars are collected."""
    hooks = Config.fromfile(DEMO_CONFIG).default_hooks
    runner = demo_runner(root, 'order')
    runner._hooks = []
    runner.register_hooks(dict(reversed(hooks.items())))
    kinds = [type(hook) for hook in runner.hooks]
    assert kinds.index(CodebookHook) < kinds.index(StepLogHook)
