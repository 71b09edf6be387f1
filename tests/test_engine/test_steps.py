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


ALL = (CodebookHook, TeacherEMAHook, StepLogHook)


@pytest.mark.parametrize(
    'kinds, told',
    [
        (ALL[::2], '1 TeacherEMAHook and has 0.*teacher_ema'),
        *(((*ALL, kind), f'1 {kind.__name__} and has 2') for kind in ALL),
        (ALL[1:], '1 CodebookHook and has 0.*codebook'),
    ],
)
def test_hooks_that_move_a_state_never_or_twice(root, kinds, told):
    """The runner refuses it before its training."""
    runner = demo_runner(root, 'refused')
    runner._hooks = []
    for kind in kinds:
        runner.register_hook(kind())
    with pytest.raises(ValueError, match=told):
        runner.train()


def test_hooks_of_pretraining_on_another_model(root):
    runner = demo_runner(root, 'refused')
    del runner.model.codebook
    with pytest.raises(ValueError, match='MOCA needs 0 CodebookHook'):
        runner.train()


def test_order_of_the_list_does_not_matter(root):
    """The codebook's update must be taken before scalars are collected."""
    hooks = Config.fromfile(DEMO_CONFIG).default_hooks
    runner = demo_runner(root, 'order')
    for listed in (hooks.items(), reversed(hooks.items())):
        runner._hooks = []
        runner.register_hooks(dict(listed))
        kinds = [type(hook) for hook in runner.hooks]
        assert kinds.index(CodebookHook) < kinds.index(StepLogHook)
