# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The configs' schedules against the formulas, iteration by iteration."""

import math
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS, PARAM_SCHEDULERS
from mmpretrain.registry import MODELS

from mmmoca.engine.teacher_ema_hook import cosine_momentum, update_teacher

CONFIGS = Path(__file__).parents[2] / 'configs'
EPOCH_LENGTH = 3


def model():
    cfg = Config.fromfile(CONFIGS / 'demo' / 'moca_vit-tiny_textures.py')
    return MODELS.build(cfg.model)


def run(config, micro_batches=1):
    """Step a config's schedulers; every group's lr and wd by iteration."""
    cfg = Config.fromfile(CONFIGS / config)
    wrapper_cfg = dict(cfg.optim_wrapper, accumulative_counts=micro_batches)
    wrapper = OPTIM_WRAPPER_CONSTRUCTORS.build(
        dict(
            type=wrapper_cfg.pop('constructor'),
            paramwise_cfg=wrapper_cfg.pop('paramwise_cfg'),
            optim_wrapper_cfg=wrapper_cfg,
        )
    )(model())
    schedulers = [
        PARAM_SCHEDULERS.build(
            scheduler,
            default_args=dict(
                optimizer=wrapper, epoch_length=EPOCH_LENGTH * micro_batches
            ),
        )
        for scheduler in cfg.param_scheduler
    ]
    history = []
    for _ in range(cfg.train_cfg.max_epochs * EPOCH_LENGTH * micro_batches):
        history.append(
            [
                (group['lr'], group['weight_decay'])
                for group in wrapper.optimizer.param_groups
            ]
        )
        wrapper._inner_count += 1
        if wrapper.should_update():
            wrapper.optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
    return history


@pytest.mark.parametrize(
    'config, epochs',
    [
        ('moca_vit-b16_100e.py', 100),
        ('moca_vit-b16_200e.py', 200),
        ('moca_vit-b16_400e.py', 400),
    ],
)
def test_learning_rate(config, epochs):
    """Warm-up from 0 over 30 epochs; a cosine cut at 1 / 1.25 of its way."""
    warmup = 30 * EPOCH_LENGTH
    period = (1.25 * epochs - 30) * EPOCH_LENGTH
    history = run(config)
    assert len(history) == epochs * EPOCH_LENGTH
    for step, groups in enumerate(history):
        if step < warmup:
            factor = step / (warmup - 1)
        else:
            factor = (1 + math.cos(math.pi * (step - warmup) / period)) / 2
        decay, no_decay, prototypes, prototypes_no_decay = groups
        expected = pytest.approx(1.2e-3 * factor, rel=1e-6, abs=1e-11)
        assert decay[0] == no_decay[0] == expected, step
        assert (decay[1], no_decay[1]) == (0.05, 0)
        assert prototypes == (1e-4, 0.05)
        assert prototypes_no_decay == (1e-4, 0)
    assert history[-1][0][0] > 1e-4


def test_accumulation_follows_the_optimiser():
    """Each micro-batch sees what its optimiser step sees without it."""
    plain, accumulated = (
        run('moca_vit-b16_100e.py'),
        run('moca_vit-b16_100e.py', micro_batches=4),
    )
    for step, groups in enumerate(plain):
        for micro_batch in accumulated[4 * step : 4 * step + 4]:
            for ours, expected in zip(micro_batch, groups):
                assert ours == pytest.approx(expected, rel=1e-9, abs=1e-13)


def test_weight_decay_of_release_v1():
    history = run('moca_vit-b16_200e_v1.0.py')
    for step, groups in enumerate(history):
        cosine = (1 + math.cos(math.pi * step / len(history))) / 2
        assert groups[0][1] == pytest.approx(0.2 - 0.15 * cosine, rel=1e-6)
        assert [wd for _, wd in groups[1:]] == [0, 0.05, 0]


def test_momentum():
    assert cosine_momentum(0.99, 0, 50) == pytest.approx(0.99)
    assert cosine_momentum(0.99, 25, 50) == pytest.approx(0.995)
    assert cosine_momentum(0.99, 50, 50) == 1
    assert cosine_momentum(0.994, 10, 40) == pytest.approx(
        1 - 0.006 * (1 + math.sqrt(0.5)) / 2
    )


def test_update_of_the_teacher():
    student, teacher = (torch.nn.Linear(3, 2) for _ in range(2))
    student.bias.requires_grad = False
    before = {k: v.clone() for k, v in teacher.state_dict().items()}
    update_teacher(teacher, student, 0.9)
    torch.testing.assert_close(
        teacher.weight.data, 0.9 * before['weight'] + 0.1 * student.weight
    )
    assert torch.equal(teacher.bias, before['bias'])


def test_unknown_option():
    with pytest.raises(ValueError, match='prototype_lr'):
        OPTIM_WRAPPER_CONSTRUCTORS.build(
            dict(
                type='mmmoca.MOCAOptimWrapperConstructor',
                optim_wrapper_cfg=dict(optimizer=dict(type='AdamW')),
                paramwise_cfg=dict(norm_decay_mult=0),
            )
        )
