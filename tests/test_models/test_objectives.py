# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from mmmoca.models import Targets
from mmmoca.models.objectives import token_assignment_loss
from mmmoca.models.precision import tf32_allowed, tf32_mm

ROUNDS = 3, 5  # decoder tokens of each image


@pytest.fixture
def inputs():
    """Return seven images of six patches, two rounds, in float64."""
    generator = torch.Generator().manual_seed(0)

    def randn(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return dict(
        features=[randn(7, n, 4).requires_grad_() for n in ROUNDS],
        positions=[
            torch.rand(7, 6, generator=generator).argsort(1)[:, :n]
            for n in ROUNDS
        ],
        prototypes=F.normalize(randn(11, 4)).requires_grad_(),
        kappa=3.0,
        targets=Targets(
            tokens=randn(7, 6, 8),
            words=F.normalize(randn(11, 8)),
            sharpness=torch.tensor(17.0, dtype=torch.float64),
            inner=torch.tensor([1, 4]),
        ),
    )


def reference(features, positions, prototypes, kappa, targets):
    tokens, words, sharpness, inner, _ = targets
    similarity = F.cosine_similarity(tokens[:, :, None], words, dim=3)
    codes = (similarity * sharpness).softmax(dim=2)
    loss = 0
    for x, position in zip(features, positions):
        index = position[..., None].expand(-1, -1, 11)
        target = codes.gather(1, index)
        log_p = (kappa * x @ prototypes.T).log_softmax(dim=2)
        divergence = (target * (target.log() - log_p)).sum(dim=2)
        loss = loss + divergence.mean() / len(features)
    msd = (similarity.amax(2) - similarity.mean(2)).mean(1)
    return loss, codes[:, inner].mean(1), msd


@pytest.mark.parametrize('chunk_size', [3, 7, None])
def test_token_loss_and_gradients(inputs, chunk_size):
    expected = reference(**inputs)
    leaves = inputs['prototypes'], *inputs['features']
    expected_grads = torch.autograd.grad(5 * expected[0], leaves)
    actual = token_assignment_loss(**inputs, chunk_size=chunk_size)
    grads = torch.autograd.grad(5 * actual[0], leaves)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(grads, expected_grads)
    targets = inputs['targets']
    codes = targets.assignments()[:, targets.inner]
    torch.testing.assert_close(codes.mean(1), expected[1])
    # without a decoder, only bags of codes
    inputs.update(features=[], positions=[], prototypes=None)
    loss, *bags = token_assignment_loss(**inputs, chunk_size=chunk_size)
    torch.testing.assert_close(bags, [*expected[1:]])
    assert loss == 0


class LargestTensor(TorchDispatchMode):
    """Records the largest storage that any operation returned."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        tensors = result if isinstance(result, (tuple, list)) else [result]
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                size = tensor.untyped_storage().nbytes() // tensor.itemsize
                self.numbers = max(self.numbers, size)
        return result


def test_token_loss_never_holds_all_assignments(inputs):
    assignments_of_all = 7 * 6 * 11
    with LargestTensor() as whole:
        reference(**inputs)[0].backward()
    with LargestTensor() as chunked:
        token_assignment_loss(**inputs, chunk_size=1)[0].backward()
    assert chunked.numbers < assignments_of_all <= whole.numbers


def test_certain_targets_keep_gradients_finite(inputs):
    """Some assignments have exactly zero probability in float32."""
    tokens, words, _, inner, _ = inputs['targets']
    features = [x.detach().float() for x in inputs['features']]
    inputs |= dict(
        features=[x.requires_grad_() for x in features],
        prototypes=inputs['prototypes'].detach().float(),
        targets=Targets(
            tokens.float(), words.float(), torch.tensor(500.0), inner
        ),
    )
    loss, _, _ = token_assignment_loss(**inputs)
    loss.backward()
    assert torch.isfinite(loss)
    for x in inputs['features']:
        assert torch.isfinite(x.grad).all() and x.grad.any()


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, 'fp32_precision'),
    reason='PyTorch before 2.9 does not know the setting',
)
@pytest.mark.parametrize('chosen', ['none', 'ieee', 'tf32'])
def test_tf32_is_scoped(chosen):
    """Afterwards, the user's own setting is restored."""
    matmul = torch.backends.cuda.matmul
    before, matmul.fp32_precision = matmul.fp32_precision, chosen
    try:
        with pytest.raises(KeyError), tf32_allowed():
            assert matmul.fp32_precision == 'tf32'
            raise KeyError
        assert matmul.fp32_precision == chosen
    finally:
        matmul.fp32_precision = before


@pytest.mark.slow
def test_operator_of_tf32():
    factors = torch.randn(5, 7), torch.randn(7, 3)
    torch.testing.assert_close(tf32_mm(*factors), factors[0] @ factors[1])
    torch.library.opcheck(tf32_mm, factors)
