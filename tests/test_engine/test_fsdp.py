# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Sharded training against training that is not, on two gloo processes."""

import pytest
import torch

from mmmoca.engine.wrapped_models import unwrap_model, whole_parameters

from ..distributed import run_processes
from ..runs import assert_same, demo_runner

pytestmark = pytest.mark.processes

STEPS, SAVED = 6, 3


SHARDED = dict(
    runner_type='FlexibleRunner', strategy=dict(type='mmmoca.MOCAFSDPStrategy')
)
OPTIONS = {
    'train_cfg.max_iters': STEPS,
    'train_cfg.val_interval': SAVED,
    'default_hooks.checkpoint.interval': SAVED,
    'default_hooks.checkpoint.max_keep_ckpts': -1,
    'optim_wrapper.dtype': 'float32',
    'env_cfg.dist_cfg.backend': 'gloo',
}


def whole_state(runner):
    """Parameters and buffers, by the names of the model itself."""
    model = unwrap_model(runner.model)
    with whole_parameters(runner.model):
        values = [*model.named_parameters(), *model.named_buffers()]
        return {
            name.replace('_fsdp_wrapped_module.', ''): value.detach().clone()
            for name, value in values
        }


def groups(runner):
    """Parameter groups without the parameters."""
    return [
        {key: value for key, value in group.items() if key != 'params'}
        for group in runner.optim_wrapper.param_groups
    ]


def train(root, name, options):
    """Train; logged scalars, groups of the optimiser and state."""
    runner = demo_runner(root, name, **OPTIONS | options)
    runner.train()
    logs = {
        key: buffer.data[0].tolist()
        for key, buffer in runner.message_hub.log_scalars.items()
        if 'time' not in key
    }
    return logs, groups(runner), whole_state(runner)


@pytest.fixture(scope='module')
def sharded(root):
    return run_processes(train, 2, root, 'fsdp', SHARDED)


def test_same_as_ddp(root, sharded):
    whole = run_processes(train, 2, root, 'ddp', {})
    for (logs, groups, state), (
        expected_logs,
        expected_groups,
        expected,
    ) in zip(sharded, whole):
        assert groups == expected_groups and len(groups) == 5
        assert set(logs) == set(expected_logs)
        for name, values in expected_logs.items():
            assert logs[name] == pytest.approx(values, rel=1e-5), name
        assert set(state) == set(expected)
        for name, value in expected.items():
            # The gradient of the keys' biases is rounding alone.
            noise = 1e-3 if name.endswith('qkv.bias') else 1e-5
            torch.testing.assert_close(
                state[name],
                value,
                rtol=1e-5,
                atol=noise * value.abs().max().item(),
                msg=lambda message, name=name: f'{name}: {message}',
            )
        moved = (
            state[f'{encoder}.ln1.weight']
            for encoder in ('backbone', 'teacher')
        )
        assert all((value != 1).any() for value in moved)
    assert_same(sharded[0][2], sharded[1][2])


def test_checkpoint_is_that_of_any_run(root, sharded):
    saved = torch.load(root / 'fsdp' / f'iter_{STEPS}.pth', weights_only=False)
    plain = torch.load(root / 'ddp' / f'iter_{STEPS}.pth', weights_only=False)
    assert list(saved['state_dict']) == list(plain['state_dict'])
    for name, value in saved['state_dict'].items():
        assert torch.equal(value, sharded[0][2][name]), name
    names = saved['optimizer']['state'].keys()
    assert 'backbone.cls_token' in names
    assert not any(name.startswith('teacher') for name in names)


def test_resumed_sharded_run_is_the_same(root, sharded):
    checkpoint = str(root / 'fsdp' / f'iter_{SAVED}.pth')
    options = SHARDED | dict(resume=True, load_from=checkpoint)
    resumed = run_processes(train, 2, root, 'resumed', options)
    for (_, _, state), (_, _, expected) in zip(resumed, sharded):
        assert_same(state, expected)
