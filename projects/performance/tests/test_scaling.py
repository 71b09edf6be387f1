# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The model of the costs against real tensors."""

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS

import scaling
from tests.images import DEMO_CONFIG
from training_step import load_recipe


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
    kept = scaling.kept_bytes(model)
    assert kept == dict(
        parameters=nbytes(model.parameters())
        - nbytes(model.teacher.parameters()),
        gradients=nbytes(gradients),
        moments=nbytes(
            moments[name]
            for moments in state
            for name in ('exp_avg', 'exp_avg_sq')
        ),
        teacher=nbytes(model.teacher.parameters()),
        codebook=nbytes([model.codebook.words]),
    )


def test_bytes_that_a_process_sends():
    with torch.device('meta'):
        model = MODELS.build(load_recipe().model)
    # 97.1 M gradients of 4 bytes go 2 * 7 / 8 times through each link.
    sent = scaling.sent_bytes(model, 8)['gradients']
    assert sent == pytest.approx(97.1e6 * 4 * 1.75, rel=1e-3)


def test_what_a_forward_pass_saves():
    """With fake tensors as with real ones."""
    cfg = Config.fromfile(DEMO_CONFIG).model
    each, anyway = scaling.saved_bytes(cfg, half=False)
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
