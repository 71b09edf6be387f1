# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The step that ours is measured against computes the same."""

import copy
from unittest import mock

import pytest
import torch

from measure import own_mebibytes
from reference_step import ReferenceStep
from training_step import MOMENTUM, TrainingStep

STEP = ('deit-tiny', 4, 'fp32', 'cpu')


@pytest.mark.slow
@pytest.mark.parametrize('attention', ['fused', 'products'])
def test_reference_step(attention):
    ours = TrainingStep(*STEP)
    reference = ReferenceStep(*STEP, attention=attention)
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
    weight, old = (
        m.backbone.layers[0].attn.qkv.weight for m in (model, before)
    )
    assert (
        0 < (weight - old).abs().max() < 2 * reference.wrapper_cfg.optimizer.lr
    )

    ours()  # makes the optimiser's state, which outlives a step
    gradients = sum(g.nbytes for g in gradients.values() if g is not None)
    taken = own_mebibytes(ours, 'cpu')
    assert gradients / 2**20 < taken < own_mebibytes(reference, 'cpu')
