# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The forward pass compiles whole and once, and trains as eager does."""

import contextlib

import pytest
import torch
from mmengine.dist import get_world_size
from torch._dynamo.utils import counters

from mmmoca.engine.compile import compile_forward
from mmmoca.models import Targets, objectives, precision, transformer
from mmmoca.models.objectives import token_assignment_loss

from ..builders import build_moca, random_views
from ..distributed import run_processes
from ..runs import assert_same, demo_runner, scalars, state_of


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def compiled_whole(function, backend='aot_eager'):
    return torch.compile(function, backend=backend, fullgraph=True)


def with_fixed_masks(**changes):
    model = build_moca(**changes)
    masks = model.masking.draw(8, torch.device('cpu'))
    model.masking.draw = lambda num_samples, device: masks
    return model


def losses_and_gradients(model, forward, precision=None):
    model.zero_grad()
    with precision or contextlib.nullcontext():
        losses = forward(random_views(), None, 'loss')
    loss, scalars = model.parse_losses(losses)
    loss.backward()
    update = scalars.pop('codebook_update')
    # The candidates are drawn at random; their number is part of the shape.
    figures = {name: value.detach() for name, value in scalars.items()}
    figures['msd'] = update.msd
    gradients = {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    return figures, gradients, update.candidates.shape


def assert_same_as_eager(model, precision=None, rtol=1e-3):
    figures, gradients, shape = losses_and_gradients(
        model, model.forward, precision
    )
    compiled = compiled_whole(model.forward)
    figures2, gradients2, shape2 = losses_and_gradients(
        model, compiled, precision
    )
    assert shape == shape2
    for name, value in figures.items():
        torch.testing.assert_close(
            figures2[name], value, rtol=1e-4, atol=1e-5, msg=name
        )
    for name, value in gradients.items():
        assert value.norm() > 0, name
        error = (gradients2[name] - value).norm() / value.norm()
        assert error < rtol, (name, float(error))


# bf16 rounds at 4e-3 and the compiler adds in another order.
AUTOCAST = dict(precision=torch.autocast('cpu', torch.bfloat16), rtol=0.03)
NO_DECODER = dict(
    neck=None,
    head__lambda_img=1.0,
    image_embedding='cls',
    masking=dict(mask_ratios=[0.6], decoder_mask_ratios=[0.3]),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    'changes, options',
    [(NO_DECODER, {}), ({}, AUTOCAST)],
    ids=['no decoder', 'autocast'],
)
def test_no_graph_break(changes, options):
    assert_same_as_eager(with_fixed_masks(**changes), **options)


@pytest.mark.slow
def test_random_masks_and_drop_path_compile(monkeypatch):
    model = build_moca(backbone__drop_path_rate=0.2)
    forward = compiled_whole(model.forward)
    torch.manual_seed(5)
    expected = model(random_views(), mode='loss')['loss_loc']
    # The compiler chooses by itself what to keep of an MLP.
    monkeypatch.delattr(transformer._GELULinear, 'forward')
    torch.manual_seed(5)
    losses = forward(random_views(), mode='loss')
    torch.testing.assert_close(losses['loss_loc'], expected)


@pytest.mark.parametrize('mode', ['reduce-overhead', 'max-autotune'])
def test_cuda_graphs_do_not_go_with_micro_batches(mode):
    with pytest.raises(ValueError, match='max-autotune-no-cudagraphs'):
        compile_forward(torch.nn.Identity(), dict(mode=mode), 2)


def product_in_tf32(first, second, tf32, out=None):
    return precision.product(first, second, True)


def add_product_in_tf32(total, first, second, tf32):
    precision.add_product(total, first, second, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ('backend', 'chunk_size', 'tf32'),
    [('aot_eager', 2, False), ('aot_eager', 2, True), ('inductor', 5, True)],
)
def test_chunks_keep_their_gradients(backend, chunk_size, tf32, monkeypatch):
    """In-place sums in an autograd.Function can lose them silently.

    On a GPU products are an operator of our own, which runs anywhere.
    """
    if tf32:
        monkeypatch.setattr(objectives, 'product', product_in_tf32)
        monkeypatch.setattr(objectives, 'add_product', add_product_in_tf32)
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.randn(*shape, generator=generator)

    words = torch.nn.functional.normalize(random(12, 6), dim=1)
    tokens, positions = random(5, 9, 6), torch.arange(4).repeat(5, 1)
    leaves = [random(12, 7), random(5, 4, 7), random(5, 4, 7)]
    leaves = [leaf.requires_grad_() for leaf in leaves]

    def loss(prototypes, *features):
        return token_assignment_loss(
            [2 * feature for feature in features],
            [positions, positions + 3],
            prototypes,
            3.0,
            Targets(tokens, words, torch.tensor(20.0), torch.arange(4)),
            chunk_size=chunk_size,
        )

    expected, *targets = loss(*leaves)
    gradients = torch.autograd.grad(expected, leaves)
    result, *targets2 = compiled_whole(loss, backend)(*leaves)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(targets2, targets)
    found = torch.autograd.grad(result, leaves)
    torch.testing.assert_close(found, gradients)


# An epoch is six batches, three steps and a validation.
TWO_EPOCHS = {
    'train_cfg': dict(
        _delete_=True, type='EpochBasedTrainLoop', max_epochs=2, val_interval=1
    ),
    'train_dataloader.sampler.infinite': False,
    'optim_wrapper.dtype': 'float32',
    'optim_wrapper.accumulative_counts': 2,
    'model.backbone.arch.num_layers': 2,
    'model.backbone.tap_layer': 1,
    'env_cfg.dist_cfg.backend': 'gloo',
}
COMPILED = {
    'compile': dict(backend='aot_eager', fullgraph=True),
    'runner_type': 'mmmoca.ConsoleRunner',
}
# Each gradient a tensor of its own, as PyTorch has them by default.
NO_VIEWS = {'model_wrapper_cfg.gradient_as_bucket_view': False}


def train(root, *variants):
    """Scalars of each step, state and compiled graphs of each variant."""
    results = []
    for options in variants:
        counters.clear()
        name = f'run_{get_world_size()}_{len(results)}'
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


@pytest.mark.slow
@pytest.mark.parametrize(
    'world_size', [1, pytest.param(2, marks=pytest.mark.processes)]
)
def test_trains_as_eager_does(root, world_size):
    """Through validations, new words, new rates and a moving teacher.

    DDP sends a bucket while the rest of the backward pass is still to come:
    PyTorch splits the graph that has been traced where a bucket ends.
    """
    variants = [{}, COMPILED] + [NO_VIEWS] * (world_size > 1)
    for results in run_processes(train, world_size, root, *variants):
        eager, compiled, *others = results
        logs, state, (traced, parts) = compiled
        assert len(logs['loss']) == 12
        assert traced == 1  # once, and in one piece
        assert parts > 1 if world_size > 1 else parts == 1
        for name, values in eager[0].items():
            assert logs[name] == pytest.approx(values, rel=1e-5), name
        assert list(state) == list(eager[1])
        for name, value in eager[1].items():
            # Adam makes steps of a gradient that is next to nothing, too:
            # that of the keys' biases is rounding alone.
            noise = 1e-3 if 'bias' in name else 1e-4
            torch.testing.assert_close(
                state[name],
                value,
                rtol=1e-4,
                atol=noise * value.abs().max().item(),
                msg=lambda message, name=name: f'{name}: {message}',
            )
        for _, state, _ in others:
            assert_same(state, eager[1])
