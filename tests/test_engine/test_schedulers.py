# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The configs' schedules follow the formulas, iteration by iteration."""

import math

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import PARAM_SCHEDULERS

from mmmoca.engine.hooks.teacher_ema_hook import (
    cosine_momentum,
    update_teacher,
)

from ..helpers.builders import build_moca
from ..helpers.images import CONFIGS

EPOCH_LENGTH = 3


def build(cfg, micro_batches=1):
    """Build optimiser wrapper and schedulers as the runner does."""
    options = dict(accumulative_counts=micro_batches)
    wrapper = build_optim_wrapper(build_moca(), cfg.optim_wrapper | options)
    run = dict(end=cfg.train_cfg.get('max_iters') or cfg.train_cfg.max_epochs)
    run |= dict(optimizer=wrapper, epoch_length=EPOCH_LENGTH * micro_batches)
    schedulers = cfg.param_scheduler
    if isinstance(schedulers, dict):
        schedulers = [schedulers]
    return wrapper, [PARAM_SCHEDULERS.build(run | one) for one in schedulers]


def follow(wrapper, schedulers, iterations):
    """Step the schedulers; return rate and weight decay of each group."""
    history = []
    for _ in range(iterations):
        groups = wrapper.optimizer.param_groups
        history.append([(g['lr'], g['weight_decay']) for g in groups])
        wrapper._inner_count += 1
        if wrapper.should_update():
            wrapper.optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
    return history


def run(config, micro_batches=1, **options):
    cfg = Config.fromfile(CONFIGS / config)
    cfg.merge_from_dict(options)
    wrapper, schedulers = build(cfg, micro_batches)
    iterations = cfg.train_cfg.max_epochs * EPOCH_LENGTH * micro_batches
    return follow(wrapper, schedulers, iterations)


def expected_factor(step, warmup, total):
    """Return the factor of a warm-up from 0 and a cosine cut at 1 / 1.25."""
    if step < warmup:
        return step / (warmup - 1)
    return 0.5 + 0.5 * math.cos(
        math.pi * (step - warmup) / (1.25 * total - warmup)
    )


@pytest.mark.parametrize(
    'config, options, warmup',
    [
        ('moca_vit-b16_100e.py', {}, 30),
        # One number sets the schedule, and one its warm-up.
        (
            'moca_vit-b16_200e.py',
            {'train_cfg.max_epochs': 20, 'param_scheduler.warmup': 0.2},
            4,
        ),
    ],
)
def test_learning_rate(config, options, warmup):
    history = run(config, **options)
    rates = []
    for step, groups in enumerate(history):
        factor = expected_factor(step, warmup * EPOCH_LENGTH, len(history))
        rates.append(pytest.approx(1.2e-3 * factor, rel=1e-6, abs=1e-11))
        decay, no_decay, prototypes, prototypes_no_decay = groups
        assert decay == (no_decay[0], 0.05) == (rates[-1], 0.05), step
        assert no_decay[1] == 0
        assert prototypes == (1e-4, 0.05)
        assert prototypes_no_decay == (1e-4, 0)
    assert history[-1][0][0] > 0.1 * 1.2e-3
    if 'param_scheduler.warmup' in options:
        # Each micro-batch has the rate that its step has without accumulation.
        parts = run(config, micro_batches=4, **options)
        assert [groups[0][0] for groups in parts] == [
            rate for rate in rates for _ in range(4)
        ]


def test_resumed_run_of_another_length():
    long, short = 'moca_vit-b16_200e.py', 'moca_vit-b16_100e.py'
    old_wrapper, old = build(Config.fromfile(CONFIGS / long))
    follow(old_wrapper, old, 150)
    cfg = Config.fromfile(CONFIGS / short)
    cfg.optim_wrapper.optimizer.lr = 1.0  # the checkpoint's value counts
    wrapper, schedulers = build(cfg)
    wrapper.load_state_dict(old_wrapper.state_dict())
    schedulers[0].load_state_dict(old[0].state_dict())
    # The first step has the optimiser's rate, which was loaded.
    resumed = follow(wrapper, schedulers, 20)
    for step, groups in enumerate(resumed[1:], start=151):
        expected = 1.2e-3 * expected_factor(step, 90, 300)
        assert groups[0][0] == pytest.approx(expected, rel=1e-9)


def test_weight_decay_of_release_v1():
    history = run('moca_vit-b16_200e_v1.0.py')
    for step, groups in enumerate(history):
        cosine = (1 + math.cos(math.pi * step / len(history))) / 2
        assert groups[0][1] == pytest.approx(0.2 - 0.15 * cosine, rel=1e-6)
        assert [wd for _, wd in groups[1:]] == [0, 0.05, 0]


def test_momentum():
    assert cosine_momentum(0.99, 0, 50) == pytest.approx(0.99)
    assert cosine_momentum(0.994, 10, 40) == pytest.approx(
        1 - 0.006 * (1 + math.sqrt(0.5)) / 2
    )
    towards = [cosine_momentum(0.9, step, 8, end=0.98) for step in (0, 4, 8)]
    assert towards == pytest.approx([0.9, 0.94, 0.98])


def test_update_of_the_teacher():
    student, teacher = (torch.nn.Linear(3, 2) for _ in range(2))
    student.bias.requires_grad = False
    before = {k: v.clone() for k, v in teacher.state_dict().items()}
    update_teacher(teacher, student, 0.9)
    torch.testing.assert_close(
        teacher.weight.data, 0.9 * before['weight'] + 0.1 * student.weight
    )
    assert torch.equal(teacher.bias, before['bias'])
