# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Ranks and micro-batches share the work of a step.

test_integration/test_resume checks that ranks have the same state.
"""

import pytest
import torch
from mmengine.dist import all_reduce, get_rank, get_world_size
from mmengine.model import MMDistributedDataParallel as DDP

from ..helpers.distributed import run_processes
from ..helpers.runs import demo_model

GLOBAL_BATCH = 8


def gradients(micro_batches=1):
    """Return loss and gradients of this rank's share of a batch."""
    model = demo_model().train()
    views = torch.randn(2, GLOBAL_BATCH, 3, 48, 48)
    order = torch.rand(2, GLOBAL_BATCH, 36).argsort(dim=2)
    parts = get_world_size() * micro_batches
    rank = get_rank()
    wrapped = model
    if get_world_size() > 1:
        wrapped = DDP(model, gradient_as_bucket_view=True)
    loss = msd = 0
    for index in range(rank * micro_batches, (rank + 1) * micro_batches):
        share = [t.chunk(parts, dim=1)[index] for t in (views, order)]
        masks = model.masking.split(share[1].flatten(0, 1))
        model.masking.draw = lambda *_, masks=masks: masks
        losses = wrapped(list(share[0]), mode='loss')
        part, logs = model.parse_losses(losses)
        part = part / micro_batches
        part.backward()
        loss = loss + part.detach()
        msd = msd + logs['codebook_update'].msd / micro_batches
    all_reduce(loss, op='mean')
    all_reduce(msd, op='mean')
    # DDP's gradients are views of its buckets, which should not be pickled.
    grads = {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    return dict(loss=loss, msd=msd, **grads)


@pytest.fixture(scope='module')
def whole_batch():
    return gradients()


def assert_same_step(actual, expected):
    assert set(actual) == set(expected)
    for name, value in expected.items():
        error = (actual[name] - value).abs() - 1e-5 * value.abs()
        assert error.max() <= 1e-6 * value.abs().max(), name


@pytest.mark.processes
def test_ranks_split_the_batch(whole_batch):
    for result in run_processes(gradients, 2):
        assert_same_step(result, whole_batch)


def test_micro_batches_split_the_batch(whole_batch):
    assert_same_step(gradients(micro_batches=4), whole_batch)
