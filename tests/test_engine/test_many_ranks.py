# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The state that ranks share, and the step that they split among them."""

import pytest
import torch
from mmengine.dist import all_reduce, get_rank, get_world_size
from mmengine.model import MMDistributedDataParallel

from mmmoca.engine.steps import unwrap_model

from ..distributed import run_processes
from ..runs import NO_VALIDATION, assert_same, demo_model, demo_runner

pytestmark = pytest.mark.processes

STEPS = 8
GLOBAL_BATCH = 8


def train(root):
    """Train for some steps; the state of this rank afterwards."""
    options = {'train_dataloader.batch_size': 4} | NO_VALIDATION
    options['train_cfg.max_iters'] = STEPS
    options['model.codebook.centre'] = 0.9
    runner = demo_runner(root, f'ranks{get_world_size()}', **options)
    runner.train()
    model = unwrap_model(runner.model).eval()
    state = dict(model.state_dict())
    words, head = model.codebook.words, model.head
    return state | dict(
        img=head.img_generator(words), loc=head.loc_generator(words)
    )


@pytest.mark.parametrize('world_size', [2, 4])
def test_ranks_agree_bit_for_bit(root, world_size):
    results = run_processes(train, world_size, root)
    assert int(results[0]['codebook.pointer']) == STEPS * 4
    assert results[0]['codebook.token_mean'].any()
    for result in results[1:]:
        assert_same(result, results[0])


def gradients(micro_batches=1):
    """Loss and gradients of one step on this rank's share of the batch."""
    model = demo_model().train()
    views = torch.randn(2, GLOBAL_BATCH, 3, 48, 48)
    order = torch.rand(2, GLOBAL_BATCH, 36).argsort(dim=2)
    parts = get_world_size() * micro_batches
    rank = get_rank()
    wrapped = model
    if get_world_size() > 1:
        wrapped = MMDistributedDataParallel(
            model, gradient_as_bucket_view=True
        )
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
    # Those of DDP lie in its buckets, which nobody should pickle for each.
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
        rounding = 1e-6 * value.abs().max().item()
        torch.testing.assert_close(
            actual[name],
            value,
            rtol=1e-5,
            atol=rounding,
            msg=lambda message, name=name: f'{name}: {message}',
        )


@pytest.mark.parametrize('world_size', [2, 4])
def test_ranks_split_the_batch(whole_batch, world_size):
    for result in run_processes(gradients, world_size):
        assert_same_step(result, whole_batch)


def test_micro_batches_split_the_batch(whole_batch):
    assert_same_step(gradients(micro_batches=4), whole_batch)
