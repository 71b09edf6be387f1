# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A training step never makes the host wait for the device.

The model runs on PyTorch's meta device, whose tensors have no values: any
read of one by the host (``item``, ``tolist``, ``nonzero``, ``if tensor``)
raises. What is drawn on the host itself may be read. Copies from the host
are seen on fake tensors, which pretend to lie on a GPU.
"""

import functools
import traceback

import pytest
import torch
from mmengine.config import Config
from mmengine.hooks import Hook
from mmpretrain.registry import MODELS
from mmpretrain.structures import DataSample
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from ..images import DEMO_CONFIG
from ..runs import demo_runner


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
def meta_runner(root, monkeypatch):
    # Autocast does not know the meta device.
    autocast = functools.partial(torch.autocast, 'cpu')
    monkeypatch.setattr(
        torch, 'autocast', lambda device_type, **kwargs: autocast(**kwargs)
    )
    runner = demo_runner(
        root,
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


class Transfers(TorchDispatchMode):
    """Notes operations that move tensors to the GPU or wait for it."""

    def __init__(self):
        super().__init__()
        self.waiting, self.copies = [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        source = args[0].device if isinstance(args[0], torch.Tensor) else None
        target = getattr(result, 'device', source)
        if source is not None and source != target:
            self.copies += 1
            if not (kwargs or {}).get('non_blocking'):
                self.waiting.append(f'{func}: {source} to {target}')
        return result


def transfers(preprocessor=None):
    cfg = Config.fromfile(DEMO_CONFIG).model
    if preprocessor is not None:
        cfg.data_preprocessor.type = preprocessor
    with FakeTensorMode(allow_non_fake_inputs=True):
        with torch.device('cuda'):
            model = MODELS.build(cfg).train()
        model.data_preprocessor.to('cuda')
        views = [torch.empty(4, 3, 48, 48, dtype=torch.uint8)] * 2
        samples = [DataSample().set_gt_label(0) for _ in range(4)]
        with Transfers() as seen:
            data = model.data_preprocessor(
                dict(inputs=views, data_samples=samples), True
            )
            losses = model(**data, mode='loss')
    assert losses['loss_img'].device.type == 'cuda'
    return seen


def test_copies_to_the_device_do_not_block():
    seen = transfers()
    assert seen.waiting == []
    assert seen.copies == 2  # the views


def test_copies_that_block_would_be_found():
    """Views, labels, and the indices of the colours' order."""
    assert len(transfers('mmpretrain.SelfSupDataPreprocessor').waiting) >= 4
