# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Sharded training against training that is not, on two gloo processes."""

import pytest
import torch
from mmengine.dist import get_world_size
from mmengine.registry import RUNNERS

from mmmoca.engine.wrapped_models import unwrap_model, whole_parameters

from ..distributed import run_processes
from ..images import demo_config, write_images

pytestmark = pytest.mark.processes

STEPS, SAVED = 6, 3


def build(root, name, sharded, options):
    """The runner of the demo on this process, in float32."""
    settings = {
        'train_cfg.max_iters': STEPS,
        'train_cfg.val_interval': SAVED,
        'default_hooks.checkpoint.interval': SAVED,
        'default_hooks.checkpoint.max_keep_ckpts': -1,
        'optim_wrapper.dtype': 'float32',
        'env_cfg.dist_cfg.backend': 'gloo',
    }
    cfg = demo_config(root, f'{root}/{name}', **settings | options)
    if sharded:
        cfg.runner_type = 'FlexibleRunner'
        cfg.strategy = dict(type='mmmoca.MOCAFSDPStrategy')
    if get_world_size() > 1:
        cfg.model_wrapper_cfg.broadcast_buffers = False
    return RUNNERS.build(cfg)


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


def train(root, name, sharded, **options):
    """Train; logged scalars, groups of the optimiser and state."""
    runner = build(root, name, sharded, options)
    runner.train()
    logs = {
        key: buffer.data[0].tolist()
        for key, buffer in runner.message_hub.log_scalars.items()
        if 'time' not in key
    }
    return logs, groups(runner), whole_state(runner)


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp('fsdp')
    write_images(root)
    return root


@pytest.fixture(scope='module')
def sharded(root):
    return run_processes(train, 2, str(root), 'fsdp', True)


def test_same_as_ddp(root, sharded):
    whole = run_processes(train, 2, str(root), 'ddp', False)
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
    for name, value in sharded[0][2].items():
        assert torch.equal(value, sharded[1][2][name]), name


def test_checkpoint_is_that_of_any_run(root, sharded):
    saved = torch.load(root / 'fsdp' / f'iter_{STEPS}.pth', weights_only=False)
    plain = torch.load(root / 'ddp' / f'iter_{STEPS}.pth', weights_only=False)
    assert list(saved['state_dict']) == list(plain['state_dict'])
    for name, value in saved['state_dict'].items():
        assert torch.equal(value, sharded[0][2][name]), name
    names = {name for name, value in saved['optimizer']['state'].items()}
    assert 'backbone.cls_token' in names
    assert not any(name.startswith('teacher') for name in names)


def test_resumed_sharded_run_is_the_same(root, sharded):
    checkpoint = str(root / 'fsdp' / f'iter_{SAVED}.pth')
    options = dict(resume=True, load_from=checkpoint)
    resumed = run_processes(resume, 2, str(root), 'resumed', options)
    for (_, _, state), expected in zip(resumed, sharded):
        for name, value in expected[2].items():
            assert torch.equal(state[name], value), name


def resume(root, name, options):
    return train(root, name, True, **options)
