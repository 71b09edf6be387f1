# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What hooks have in common: seeds, and who moves which state."""

import itertools

import pytest
from mmengine.config import Config
from mmengine.hooks import Hook

from mmmoca.engine import CodebookHook, StepLogHook
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


class Untrained(Hook):
    priority = 'LOWEST'

    def before_train_iter(self, *_, **__):
        raise AssertionError('the training began')


def refused(root, change, message):
    runner = demo_runner(root, 'refused')
    change(runner)
    runner.register_hook(Untrained())
    with pytest.raises(ValueError, match=message):
        runner.train()


@pytest.mark.parametrize(
    'name, key',
    [('CodebookHook', 'codebook'), ('TeacherEMAHook', 'teacher_ema')],
)
def test_forgotten_hook(root, name, key):
    def forget(runner):
        runner._hooks = [
            hook for hook in runner.hooks if type(hook).__name__ != name
        ]

    refused(root, forget, f'no {name}.*{key}=dict')


@pytest.mark.parametrize(
    'name', ['CodebookHook', 'TeacherEMAHook', 'StepLogHook']
)
def test_hook_that_is_listed_twice(root, name):
    def repeat(runner):
        runner.register_hook(dict(type=f'mmmoca.{name}'))

    refused(root, repeat, f'{name} is there 2 times.*custom_hooks')


def test_hooks_of_pretraining_on_another_model(root):
    def replace(runner):
        del runner.model.codebook

    refused(root, replace, 'MOCA has none.*runtime.py')


def test_order_of_the_list_does_not_matter(root):
    """The codebook's update must be taken before scalars are collected."""
    hooks = Config.fromfile(DEMO_CONFIG).default_hooks
    for listed in (hooks.items(), reversed(hooks.items())):
        runner = demo_runner(root, 'order')
        runner._hooks = []
        runner.register_hooks(dict(listed))
        kinds = [type(hook) for hook in runner.hooks]
        assert kinds.index(CodebookHook) < kinds.index(StepLogHook)
