# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The reference step computes the same as our step."""

import copy
from unittest import mock

import pytest
import torch
from mmengine.config import Config
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from reference_step import ReferenceStep
from tests.helpers.images import DEMO_CONFIG
from tests.helpers.runs import NO_VALIDATION, demo_runner
from training_step import MOMENTUM, RECIPE, TrainingStep, count_flops

# The recipe with a small network and few words, on small images.
SMALL = f"""
_base_ = {str(RECIPE)!r}
arch = dict(
    _delete_=True,
    embed_dims=192,
    num_layers=4,
    num_heads=3,
    feedforward_channels=768,
)
model = dict(
    backbone=dict(arch=arch, tap_layer=3, img_size=96),
    codebook=dict(num_words=256),
)
"""


@pytest.mark.slow
@pytest.mark.parametrize('attention', ['fused', 'products'])
def test_reference_step(tmp_path, attention):
    config = tmp_path / 'small.py'
    config.write_text(SMALL)
    step = None, 4, 'fp32', 'cpu'
    ours = TrainingStep(*step, config=config)
    reference = ReferenceStep(*step, config=config, attention=attention)
    kernel = reference.attention = mock.Mock(wraps=reference.attention)
    masks = ours.model.masking.draw(8, torch.device('cpu'))
    for step in (ours, reference):
        step.model.masking.draw = lambda *_: masks
    expected = ours.forward()
    names = 'loss_img', 'loss_loc'
    sum(expected[name] for name in names).backward()
    losses = reference.forward()
    assert kernel.called
    sum(losses[name] for name in names).backward()
    for name in names:
        torch.testing.assert_close(losses[name], expected[name])
    gradients = {k: p.grad for k, p in ours.model.named_parameters()}
    for name, parameter in reference.model.named_parameters():
        if parameter.requires_grad:
            torch.testing.assert_close(
                parameter.grad,
                gradients[name],
                rtol=1e-3,
                atol=2e-5 * float(gradients[name].abs().max()) + 1e-9,
                msg=name,
            )

    model = reference.model
    model.zero_grad()
    before = copy.deepcopy(model)
    reference()
    for old, teacher, student in zip(
        before.teacher.parameters(),
        model.teacher.parameters(),
        model.backbone.parameters(),
    ):
        expected = MOMENTUM * old + (1 - MOMENTUM) * student
        torch.testing.assert_close(teacher, expected, rtol=1e-6, atol=1e-8)
    assert not torch.equal(old, student)


@pytest.mark.slow
def test_operations_of_a_step():
    """``count_flops`` is exact for 6 images, though it measures 4 and 8."""
    step = TrainingStep(None, 6, 'fp32', 'cpu', config=DEMO_CONFIG)
    with (
        sdpa_kernel(SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        loss, _ = step.model.parse_losses(step.forward())
        loss.backward()
    expected = counter.get_total_flops()
    assert count_flops(None, 6, DEMO_CONFIG) == expected > 1e9


def test_steps_are_set_up_as_runs_are(root):
    """The benchmark measures what the Runner does."""
    model = Config.fromfile(DEMO_CONFIG).model
    options = NO_VALIDATION | {
        'optim_wrapper.dtype': 'bfloat16',
        'model.backbone': model.backbone,
        'model.neck': model.neck,
    }
    runner = demo_runner(root, 'same', **options)
    theirs = runner.build_optim_wrapper(runner.cfg.optim_wrapper)
    step = TrainingStep(None, 4, 'bf16', 'cpu', config=DEMO_CONFIG)
    assert step.wrapper.optimizer.defaults['fused'] is True
    assert describe(step.wrapper) == describe(theirs)


def describe(wrapper):
    """Return the settings of an optimiser wrapper, and parameter shapes."""
    groups = [
        dict(group, params=[p.shape for p in group['params']])
        for group in wrapper.param_groups
    ]
    clip = wrapper.clip_grad_kwargs
    return type(wrapper), type(wrapper.optimizer), clip, groups
