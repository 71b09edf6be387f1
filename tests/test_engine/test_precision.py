# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""float32, bfloat16, and float16 with a scaler, on a GPU if there is one."""

import pytest
import torch
from mmengine.config import Config
from torch import nn

from mmmoca.engine import (
    GPUMixedPrecisionOptimWrapper,
    MixedPrecisionOptimWrapper,
)
from mmmoca.engine.optimizers import mixed_precision
from mmmoca.engine.optimizers.mixed_precision import fast_dtype

from ..helpers.builders import build_moca
from ..helpers.images import CONFIGS
from ..helpers.runs import demo_runner, scalars
from .test_loss_scaling import HALF, SMALL, STEPS

pytestmark = pytest.mark.gpu


def train(root, dtype):
    """Return the runner after some steps with this machine's wrapper."""
    options = HALF | SMALL | {'optim_wrapper.dtype': dtype}
    if dtype != 'float16':
        kind = 'mmmoca.MixedPrecisionOptimWrapper'
        options['optim_wrapper.type'] = kind
    runner = demo_runner(root, dtype, **options)
    runner.train()
    return runner


@pytest.fixture(scope='module')
def full(root):
    return train(root, 'float32')


@pytest.mark.slow
@pytest.mark.parametrize('dtype', ['bfloat16', 'float16'])
def test_trains_as_in_float32(root, full, dtype):
    runner = train(root, dtype)
    scales = runner.optim_wrapper.loss_scaler.is_enabled()
    assert scales == (dtype == 'float16')
    for name in ('loss', 'loss_img', 'loss_loc', 'msd'):
        key = f'train/{name}'
        values = scalars(runner, key).tolist()
        expected = scalars(full, key).tolist()
        assert values == pytest.approx(expected, rel=0.03), name
        # The losses differ, so something was cast.
        assert values != expected
    for name, value in runner.model.state_dict().items():
        assert value.dtype in (torch.float32, torch.int64), name


def wrapper_of(dtype, kind=MixedPrecisionOptimWrapper):
    """Return a wrapper, and the dtype of a layer's output in its context."""
    layer = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    wrapper = kind(optimizer=optimizer, dtype=dtype)
    with wrapper.optim_context(layer):
        return wrapper, layer(torch.ones(1, 2)).dtype


@pytest.mark.skipif(
    torch.cuda.is_available(), reason='autocasts to the dtype of a GPU'
)
@pytest.mark.parametrize(
    ('instructions', 'fast'),
    [
        ({'avx512_f': True, 'avx512_bf16': False}, torch.float32),
        ({'avx512_f': True, 'avx512_bf16': True}, torch.bfloat16),
        ({'amx_bf16': True}, torch.bfloat16),
    ],
)
def test_what_a_cpu_is_fast_in(instructions, fast, monkeypatch):
    monkeypatch.setattr(
        torch.cpu, 'get_capabilities', lambda: instructions, raising=False
    )
    # An explicit dtype is used, except float16.
    for dtype, taken in (
        ('auto', fast),
        (torch.float16, fast),
        ('bfloat16', torch.bfloat16),
        ('float32', torch.float32),
    ):
        wrapper, found = wrapper_of(dtype)
        assert wrapper.cast_dtype == found == taken
        assert not wrapper.loss_scaler.is_enabled()
    wrapper, found = wrapper_of('bfloat16', GPUMixedPrecisionOptimWrapper)
    assert wrapper.cast_dtype == found == torch.float32


@pytest.mark.parametrize(
    ('device', 'native', 'fast'),
    [('cuda', 1, 'bfloat16'), ('cuda', 0, 'float16'), ('mps', 0, 'float32')],
)
def test_what_others_are_fast_in(device, native, fast, monkeypatch):
    monkeypatch.setattr(mixed_precision, 'get_device', lambda: device)
    monkeypatch.setattr(torch.cuda, 'is_bf16_supported', lambda **_: native)
    assert fast_dtype() == fast


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
@pytest.mark.slow
@pytest.mark.parametrize('dtype', ['float32', 'bfloat16', 'float16'])
def test_recipe_on_a_gpu(root, dtype):
    """ViT-B/16 trains at batch 8 with K = 4096, scaler and fused AdamW."""
    recipe = Config.fromfile(CONFIGS / 'moca_vit-b16_200e.py')
    options = {**HALF, 'model': recipe.model}
    options['optim_wrapper'] = recipe.optim_wrapper | dict(dtype=dtype)
    # The first steps of a run are the warm-up.
    options['optim_wrapper'].optimizer.lr = 1e-4
    for view in range(2):
        pipeline = f'train_dataloader.dataset.pipeline.2.transforms.{view}'
        options[f'{pipeline}.0.scale'] = 224
    for name in ('type', 'dtype', 'loss_scale'):
        options.pop(f'optim_wrapper.{name}', None)
    runner = demo_runner(root, f'gpu_{dtype}', **options)
    runner.train()
    losses = scalars(runner, 'train/loss')
    assert len(losses) == STEPS and all(1 < loss < 20 for loss in losses)
    for name, value in runner.model.state_dict().items():
        assert value.isfinite().all(), name


@pytest.mark.parametrize('other', [True, False])
def test_micro_batches_warn_of_batch_norm_over_images(monkeypatch, other):
    """Norms over words cause no warning: micro-batches do not change them."""
    said = []
    monkeypatch.setattr(
        'mmengine.optim.optimizer.optimizer_wrapper.print_log',
        lambda text, **_: said.append(text),
    )
    model = build_moca()
    if other:
        model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapper = MixedPrecisionOptimWrapper(
        optimizer=optimizer, dtype='float32', accumulative_counts=2
    )
    wrapper.initialize_count_status(model, 0, 5)
    assert bool(said) == other
    assert wrapper._remainder_counts == 1
