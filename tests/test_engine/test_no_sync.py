# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A training step never makes the host wait for the device.

The model runs on PyTorch's meta device, whose tensors have no values: any
read of one by the host (``item``, ``tolist``, ``nonzero``, ``if tensor``)
raises. What is drawn on the host itself may be read. The full recipe is
rehearsed on fake tensors, which pretend to lie on a GPU.
"""

import functools
import traceback
from unittest import mock

import pytest
import torch
from mmengine.config import Config
from mmengine.hooks import Hook
from mmpretrain.registry import MODELS
from mmpretrain.structures import DataSample
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensorMode,
)
from torch.nn import functional as F

from mmmoca.evaluation.features import extract_shard

from ..helpers.images import CONFIGS
from ..helpers.runs import demo_runner
from ..helpers.transfers import Transfers


class ToMeta(Hook):
    """Moves the model away and builds the optimiser anew."""

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


def test_first_read_is_that_of_the_log(meta_runner, monkeypatch):
    """And nothing goes to the device but the views and the words."""
    seen, loop = Transfers(), meta_runner.train_loop

    def watched(*args, run_iter=loop.run_iter):
        with seen:
            return run_iter(*args)

    monkeypatch.setattr(loop, 'run_iter', watched)
    with pytest.raises((RuntimeError, NotImplementedError)) as error:
        meta_runner.train()
    assert 'meta' in str(error.value)
    assert '_read' in [frame.name for frame in traceback.extract_tb(error.tb)]
    assert meta_runner.iter == 2  # the run's last
    assert seen.waiting == []
    # The views, by the preprocessor, and the words of other processes.
    assert seen.copies >= 2 * 2


def rehearse(config, batch_size, **head):
    """The forward pass in float16 on a GPU that need not be there."""
    cfg = Config.fromfile(config).model
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
    """Lets autocast work without a GPU, for fake tensors."""
    name = 'torch.cuda.amp.common.amp_definitely_not_available'
    monkeypatch.setattr(name, lambda: False)


@pytest.mark.slow
@pytest.mark.parametrize('allow_tf32', [True, False])
def test_recipe_fits_together_on_a_gpu(cuda_autocast, allow_tf32):
    """ViT-B/16 at batch 256: devices, types, and no copy that blocks."""
    seen = rehearse(
        CONFIGS / 'moca_vit-b16_200e.py', 256, allow_tf32=allow_tf32
    )
    assert seen.waiting == []
    assert seen.copies == 2  # the views
    # Similarities of all tokens; of decoder tokens logits and two gradients.
    objective = 2 * 512 * 4096 * (196 * 768 + (127 + 88) * 512 * 3)
    assert seen.flops['tf32'] == (objective if allow_tf32 else 0)
    # L_IMG, and the mean similarity of tokens.
    others = seen.flops[torch.float32] - (0 if allow_tf32 else objective)
    assert 0 < others < 0.001 * seen.flops[torch.float16]


def classifier_on_a_gpu(name):
    """The model of a config, on fake tensors."""
    config = CONFIGS / 'classification' / f'{name}_in1k.py'
    with torch.device('cuda'):
        model = MODELS.build(Config.fromfile(config).model).train()
    model.data_preprocessor.to('cuda')
    return model


def labelled_batch():
    """Two images with labels, on the host."""
    samples = [
        DataSample(metainfo=dict(sample_idx=i)).set_gt_label(i)
        for i in range(2)
    ]
    images = torch.empty(2, 3, 224, 224, dtype=torch.uint8)
    return dict(inputs=images, data_samples=samples)


# mmpretrain's preprocessor waits for images and labels, its Mixup and CutMix
# index by an order on the host.
@pytest.mark.slow
@pytest.mark.parametrize(
    'name, waits', [('linear_vit-b16_100e', 2), ('finetune_vit-b16_100e', 4)]
)
def test_classifiers_wait_for_a_batch_not_for_images(
    cuda_autocast, name, waits
):
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = classifier_on_a_gpu(name)
        with Transfers() as seen, torch.autocast('cuda', torch.float16):
            data = model.data_preprocessor(labelled_batch(), True)
            losses = model(**data, mode='loss')
    assert {loss.device.type for loss in losses.values()} == {'cuda'}
    assert len(seen.waiting) == waits


class Loader(list):
    batch_sampler, sampler = None, range(4)


def test_a_bank_waits_after_its_last_batch_alone():
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = classifier_on_a_gpu('knn_vit-b16')
        batches = Loader([labelled_batch(), labelled_batch()])
        watched = mock.Mock(wraps=model)
        watched.data_preprocessor = model.data_preprocessor
        # Whether all features are finite.
        with pytest.raises(DataDependentOutputException):
            extract_shard(watched, batches, 'bank', F.normalize)
    assert watched.extract_feat.call_count == 2
