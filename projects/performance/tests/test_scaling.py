# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The model of the costs against real tensors."""

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS

import scaling
from tests.helpers.images import DEMO_CONFIG
from training_step import load_recipe


@pytest.fixture
def cfg():
    return Config.fromfile(DEMO_CONFIG)


def test_bytes_that_a_process_keeps(cfg):
    model = MODELS.build(cfg.model)
    wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    loss, _ = model.parse_losses(model.loss(scaling.random_views(model, 4)))
    wrapper.backward(loss)
    kept = [model.codebook.words, *model.parameters()]
    kept += [p.grad for p in model.parameters() if p.grad is not None]
    wrapper.step()
    for moments in wrapper.optimizer.state.values():
        kept += [moments['exp_avg'], moments['exp_avg_sq']]
    assert scaling.kept_bytes(model) == sum(t.nbytes for t in kept)


def test_bytes_that_a_process_sends():
    with torch.device('meta'):
        model = MODELS.build(load_recipe().model)
    # 97.1 M gradients of 4 bytes go 2 * 7 / 8 times through each link.
    sent = scaling.sent_bytes(model, 8)
    assert sent == pytest.approx(97.1e6 * 4 * 1.75, rel=1e-3)


def test_what_a_forward_pass_saves(cfg):
    """With fake tensors as with real ones."""
    each, anyway = scaling.saved_bytes(cfg.model, half=False)
    model = MODELS.build(cfg.model).train()
    kept = {}  # by address; the tensors themselves, so that none is reused

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks
    with hooks(pack, lambda tensor: tensor):
        model.loss(scaling.random_views(model, 6))
    for tensor in [*model.parameters(), *model.buffers()]:
        kept.pop(tensor.untyped_storage().data_ptr(), None)
    sizes = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    assert sizes == pytest.approx(6 * each + anyway, rel=1e-3)
