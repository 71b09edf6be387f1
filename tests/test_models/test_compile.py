# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Each pass compiles once, as one graph, and trains as eager mode does."""

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from mmmoca.engine.compile import compile_forward
from mmmoca.models import transformer

from ..helpers.builders import ARCH, build_moca, random_views
from ..helpers.runs import DDP, demo_runner, scalars, state_of


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.slow
def test_no_graph_break_under_autocast(monkeypatch):
    """The losses are equal; gradients are compared below, in float32."""
    model = build_moca(
        backbone__arch=dict(ARCH, num_layers=1),
        backbone__tap_layer=1,
        backbone__drop_path_rate=0.2,
    )

    def loss():
        """Compute the loss with the same random masks in each call."""
        torch.manual_seed(5)
        with torch.autocast('cpu', torch.bfloat16):
            losses = model(random_views(), None, 'loss')
        return model.parse_losses(losses)[0]

    expected = loss()
    # The compiler itself chooses which tensors of an MLP to keep.
    monkeypatch.delattr(transformer._GELULinear, 'forward')
    compile_forward(model, dict(backend='eager', fullgraph=True))
    found = loss()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    found.backward()


@pytest.mark.slow
def test_cuda_graphs_do_not_go_with_micro_batches():
    model, options = torch.nn.Identity(), dict(mode='reduce-overhead')
    with pytest.raises(ValueError, match='max-autotune-no-cudagraphs'):
        compile_forward(model, options, 2)
    assert 'forward' not in vars(model)
    compile_forward(model, options)
    assert 'forward' in vars(model)


def kept_and_gradients(budget):
    """Return the bytes kept for the backward pass, and the gradients."""
    torch.compiler.reset()
    torch.manual_seed(5)
    wide = [nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16), nn.GELU()]
    model, saved = nn.Sequential(*wide, nn.Linear(16, 1)), {}
    options = dict(backend='aot_eager_decomp_partition')
    compile_forward(model, options | dict(memory_budget=budget))

    def keep(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        loss = model(torch.randn(64, 16)).mean()
    loss.backward()
    kept = sum(x.untyped_storage().nbytes() for x in saved.values())
    return kept, [parameter.grad for parameter in model.parameters()]


@pytest.mark.slow
def test_the_backward_pass_computes_again():
    kept, gradients = kept_and_gradients(1)
    less, found = kept_and_gradients(0.3)
    assert less < 0.7 * kept
    torch.testing.assert_close(found, gradients)


def test_only_this_graph_stays_whole(monkeypatch):
    """Before PyTorch 2.11, DDP splits other graphs only, as the caller set."""

    class Model(torch.nn.Module):
        def forward(self, x):
            return x + 1

    class Wrapper(torch.nn.Module):
        module = Model()

    found = []

    def backend(graph, _):
        found.append(torch._dynamo.config.optimize_ddp)
        return graph

    part = 'mmmoca.engine.compile'
    monkeypatch.setattr(f'{part}.DistributedDataParallel', Wrapper)
    monkeypatch.setattr(f'{part}.unwrap_model', lambda model: model.module)
    before = torch._dynamo.config.optimize_ddp
    with monkeypatch.context() as patch:
        patch.setattr(torch, '__version__', '2.6.0')
        compile_forward(Wrapper(), dict(backend=backend))
    assert torch._dynamo.config.optimize_ddp == before
    Wrapper.module(torch.ones(2))
    assert found == [False] and torch._dynamo.config.optimize_ddp == before


# An epoch has three batches, two of which form a step, and a validation.
TWO_EPOCHS = {
    'train_cfg': dict(
        _delete_=True, type='EpochBasedTrainLoop', max_epochs=2, val_interval=1
    ),
    'train_dataloader.batch_size': 16,
    'train_dataloader.sampler.infinite': False,
    'model.backbone.arch.embed_dims': 192,  # larger than one bucket of DDP
    'optim_wrapper.dtype': 'float32',
    'optim_wrapper.accumulative_counts': 2,
    'model.backbone.arch.num_layers': 2,
    'model.backbone.tap_layer': 1,
    **DDP,
}
COMPILED = {'compile': dict(backend='aot_eager', fullgraph=True)}
BLOCKS = {'compile': dict(backend='eager', fullgraph=True, blocks=True)}
FORMS = dict(eager={}, passes=COMPILED, blocks=BLOCKS)


def train(root):
    """Return each form's scalars by step, its state and its graph counts."""
    results = []
    for name, options in FORMS.items():
        torch.compiler.reset()
        counters.clear()
        runner = demo_runner(root, name, **TWO_EPOCHS | options)
        runner.train()
        logs = {
            name: scalars(runner, f'train/{name}').tolist()
            for name in ('loss', 'grad_norm', 'msd')
        }
        graphs = [
            counters['stats']['unique_graphs'],
            counters['aot_autograd']['total'],
        ]
        results.append((logs, state_of(runner), graphs))
    return results


@pytest.fixture
def one_rank(monkeypatch):
    """Start a group of one process, with which DDP works too."""
    monkeypatch.setenv('LOCAL_RANK', '0')
    store = dict(store=torch.distributed.HashStore(), rank=0, world_size=1)
    torch.distributed.init_process_group('gloo', **store)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_trains_as_eager_does(root, one_rank):
    """Training includes validations, new words and a moving teacher.

    DDP sends a bucket while the backward pass continues, so PyTorch splits a
    traced graph where a bucket ends.
    """
    eager, passes, blocks = train(root)
    traced, parts = passes[2]
    # The graphs of the teacher, of the student and of the losses.
    assert traced == 3
    assert parts > 3
    # Encoder and decoder, with and without gradients; each for its first
    # number of tokens, and for any number.
    assert 1 < blocks[2][0] <= 8
    assert_close(passes, eager)
    assert_close(blocks, eager)


def assert_close(found, expected):
    """Compare what two trainings logged, and their states."""
    assert len(found[0]['loss']) == 6
    for name, values in expected[0].items():
        assert found[0][name] == pytest.approx(values, rel=1e-5), name
    assert list(found[1]) == list(expected[1])
    for name, value in expected[1].items():
        # Adam also makes steps from a gradient that is nearly zero: the
        # gradient of keys' biases is rounding alone.
        noise = 1e-3 if 'bias' in name else 1e-4
        atol = noise * value.abs().max().item()
        torch.testing.assert_close(found[1][name], value, rtol=1e-4, atol=atol)
