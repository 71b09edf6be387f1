# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The model of the costs against real processes and tensors."""

import sys

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS

import costs
import scaling
from tests.images import DEMO_CONFIG
from training_step import load_recipe


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(sys.platform != 'linux', reason='counts sockets of Linux')
def test_bytes_that_processes_send():
    (row,) = scaling.check([2], memory=False)
    # gloo's message headers, and what the kernel has not counted yet
    assert row['ratio'] == pytest.approx(1, abs=0.02), row


def test_bytes_that_a_process_keeps():
    cfg = Config.fromfile(DEMO_CONFIG)
    model = MODELS.build(cfg.model)
    wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    views = list(torch.randn(2, 4, 3, 48, 48))
    loss, _ = model.parse_losses(model.loss(views))
    wrapper.backward(loss)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    wrapper.step()

    def nbytes(tensors):
        return sum(tensor.nbytes for tensor in tensors)

    state = wrapper.optimizer.state.values()
    kept = costs.kept_bytes(model, ranks=1)
    assert kept == dict(
        parameters=nbytes(model.parameters())
        - nbytes(model.teacher.parameters()),
        gradients=nbytes(gradients),
        moments=nbytes(
            moments[name]
            for moments in state
            for name in ('exp_avg', 'exp_avg_sq')
        ),
        buckets=0,
        teacher=nbytes(model.teacher.parameters()),
        codebook=nbytes([model.codebook.words]),
    )


def test_hours_of_a_recipe():
    """1640 images a second on one GPU are 6 hours on eight, at most."""
    step = 256 / 1640
    hours = costs.recipe_hours(step, 256, 8)
    assert hours == pytest.approx(200 * 1_281_167 / (8 * 1640) / 3600, 1e-3)
    assert 5 < hours < 6
    with torch.device('meta'):
        model = MODELS.build(load_recipe().model)
    # 97.1 M gradients of 4 bytes go 2 * 7 / 8 times through each link.
    sent = costs.sent_bytes(model, 8)['gradients']
    assert sent == pytest.approx(97.1e6 * 4 * 1.75, rel=1e-3)
    late = costs.recipe_hours(step, 256, 8, sent, 10e9)
    assert late / hours == pytest.approx(1 + sent / 10e9 / step)
    link = dict(gradient_bytes=sent, bandwidth=10e9)
    hidden = costs.recipe_hours(step, 256, 8, **link, overlapped=0.05)
    assert late - hidden == pytest.approx(0.05 * 125_000 / 3600)
    assert costs.recipe_hours(step, 256, 8, **link, overlapped=1) == hours


def test_what_a_forward_pass_saves():
    """With fake tensors as with real ones."""
    cfg = Config.fromfile(DEMO_CONFIG).model
    each, anyway = costs.saved_bytes(cfg, half=False)
    model = MODELS.build(cfg).train()
    own = {
        tensor.untyped_storage().data_ptr()
        for tensor in [*model.parameters(), *model.buffers()]
    }
    sizes = {}
    kept = []

    def pack(tensor):
        storage = tensor.untyped_storage()
        kept.append(tensor)
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks
    with hooks(pack, lambda tensor: tensor):
        model.loss(list(torch.randn(2, 6, 3, 48, 48)))
    assert sum(sizes.values()) == pytest.approx(6 * each + anyway, rel=1e-3)
