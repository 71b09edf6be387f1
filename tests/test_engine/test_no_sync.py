# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A training step never makes the host wait for the device.

The model runs on PyTorch's meta device, whose tensors have no values. Any read
of a value by the host (``item``, ``tolist``, ``nonzero``, ``if tensor``)
raises an error. Numbers drawn on the host may be read. The full recipe runs on
fake tensors, which pretend to be on a GPU.
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

from ..helpers.images import CONFIGS
from ..helpers.runs import demo_runner
from ..helpers.transfers import Transfers


class ToMeta(Hook):
    """Moves the model to the meta device and builds the optimiser anew."""

    def before_train(self, runner):
        runner.model.to('meta')
        runner.optim_wrapper = runner.build_optim_wrapper(self.cfg)
        runner.optim_wrapper.initialize_count_status(
            runner.model, 0, runner.max_iters
        )


@pytest.fixture
def meta_runner(root, monkeypatch):
    # Autocast does not know the meta device.
    autocast = functools.partial(torch.autocast, 'cpu')
    monkeypatch.setattr(
        torch,
        'autocast',
        lambda device_type, *args, **kwargs: autocast(*args, **kwargs),
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


@pytest.mark.slow
def test_first_read_is_that_of_the_log(meta_runner, monkeypatch):
    """Only the views and the words are copied to the device."""
    seen, loop = Transfers(), meta_runner.train_loop

    def watched(*args, run_iter=loop.run_iter):
        with seen:
            return run_iter(*args)

    monkeypatch.setattr(loop, 'run_iter', watched)
    with pytest.raises((RuntimeError, NotImplementedError)) as error:
        meta_runner.train()
    assert 'meta' in str(error.value)
    assert '_read' in [frame.name for frame in traceback.extract_tb(error.tb)]
    assert meta_runner.iter == 2  # the run's last iteration
    assert seen.waiting == []
    # The preprocessor copies the views; the words come from other processes.
    assert seen.copies >= 2 * 2


def rehearse(batch_size, **head):
    """Compute the recipe's loss in float16, as if on a GPU."""
    cfg = Config.fromfile(CONFIGS / 'moca_vit-b16_200e.py').model
    cfg.head.update(head)
    autocast = torch.autocast('cuda', torch.float16)
    with FakeTensorMode(allow_non_fake_inputs=True):
        with torch.device('cuda'):
            model = MODELS.build(cfg).train()
        model.data_preprocessor.to('cuda')
        shape = batch_size, 3, *model.backbone.img_size
        views = [torch.empty(shape, dtype=torch.uint8)] * 2
        samples = [DataSample().set_gt_label(0) for _ in range(batch_size)]
        with Transfers() as seen, autocast:
            data = model.data_preprocessor(
                dict(inputs=views, data_samples=samples), True
            )
            losses = model(**data, mode='loss')
    update = losses.pop('codebook_update')
    for value in (*losses.values(), update.candidates, update.msd):
        assert value.device.type == 'cuda'
        assert value.dtype == torch.float32
    return seen


@pytest.fixture
def cuda_autocast(monkeypatch):
    """Let autocast work without a GPU, for fake tensors."""
    name = 'torch.cuda.amp.common.amp_definitely_not_available'
    monkeypatch.setattr(name, lambda: False)


@pytest.mark.slow
def test_recipe_fits_together_on_a_gpu(cuda_autocast):
    """Devices and types of ViT-B/16 at batch 256 fit, and no copy blocks."""
    seen = rehearse(256, allow_tf32=True)
    assert seen.waiting == []
    assert seen.copies == 2  # the views
    # The similarities of all tokens; for decoder tokens, logits and two
    # gradients.
    objective = 2 * 512 * 4096 * (196 * 768 + (127 + 88) * 512 * 3)
    assert seen.flops['tf32'] == objective
    # L_IMG, and the mean similarity of tokens.
    others = seen.flops[torch.float32]
    assert 0 < others < 0.001 * seen.flops[torch.float16]
