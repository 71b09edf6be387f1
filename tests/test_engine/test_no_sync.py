# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A training step never makes the host wait for the device.

The model runs on PyTorch's meta device, whose tensors have no values: any
read of one by the host (``item``, ``tolist``, ``nonzero``, ``if tensor``)
raises. What is drawn on the host itself may be read.
"""

import functools
import traceback

import pytest
import torch
from mmengine.hooks import Hook

from ..images import write_images
from .test_step_log_hook import build


class ToMeta(Hook):
    """Moves the model away and builds the optimiser anew."""

    def before_train(self, runner):
        runner.model.to('meta')
        runner.optim_wrapper = runner.build_optim_wrapper(self.cfg)
        runner.optim_wrapper.initialize_count_status(
            runner.model, 0, runner.max_iters
        )


class ReadsMu(Hook):
    def after_train_iter(self, runner, *_, **__):
        assert runner.model.codebook.msd > 0


@pytest.fixture
def meta_runner(tmp_path, monkeypatch):
    # Autocast does not know the meta device.
    autocast = functools.partial(torch.autocast, 'cpu')
    monkeypatch.setattr(
        torch, 'autocast', lambda device_type, **kwargs: autocast(**kwargs)
    )
    write_images(tmp_path)
    runner = build(
        tmp_path,
        'meta',
        **{
            'train_cfg.max_iters': 3,
            'default_hooks.logger.interval': 10,
            'default_hooks.checkpoint.interval': 10,
            # No fused kernel knows the meta device.
            'optim_wrapper.optimizer.fused': False,
            'optim_wrapper.clip_grad': dict(max_norm=0.1),
        },
    )
    hook = ToMeta()
    hook.cfg = runner.cfg.optim_wrapper
    runner.register_hook(hook, 'VERY_LOW')
    return runner


def read_by(runner):
    """The calls, outermost first, that led to the first read of a value."""
    with pytest.raises((RuntimeError, NotImplementedError)) as error:
        runner.train()
    assert 'meta' in str(error.value)
    return [frame.name for frame in traceback.extract_tb(error.tb)]


def test_first_read_is_that_of_the_log(meta_runner):
    assert '_read' in read_by(meta_runner)
    assert meta_runner.iter == 2  # the run's last


def test_any_other_read_would_be_found(meta_runner):
    meta_runner.register_hook(ReadsMu())
    assert '_read' not in read_by(meta_runner)
    assert meta_runner.iter == 0
