# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A GPU computes what the CPU does: eager, compiled, and in TF32."""

import pytest
import torch

from mmmoca.engine.compile import compile_forward
from mmmoca.models.masking import Mask

from ..helpers.builders import build_moca, random_views

DEVICE = 'cuda'
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,  # compiles
    pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU'),
]


def losses_and_gradients(device, compiled=False, **changes):
    """Return losses and gradients of the same model and views on a device."""
    model = build_moca(**changes)
    drawn = model.masking.draw(8, torch.device('cpu'))
    masks = [Mask(*(part.to(device) for part in mask)) for mask in drawn]
    model.masking.draw = lambda *_: masks
    model.to(device)
    compile_forward(model, compiled)
    views = [view.to(device) for view in random_views()]
    # By default, cuDNN embeds patches in TF32.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        loss, scalars = model.parse_losses(model(views, None, 'loss'))
        loss.backward()
    update = scalars.pop('codebook_update')
    figures = torch.stack([*scalars.values(), update.msd.mean()])
    gradients = {
        name: parameter.grad.cpu()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    return figures.detach().cpu(), gradients


@pytest.mark.parametrize(
    ('allow_tf32', 'compiled', 'of_losses', 'of_gradients'),
    [
        (False, False, 1e-5, 1e-3),
        (False, True, 1e-5, 1e-3),
        (False, 'blocks', 1e-5, 1e-3),
        # TF32 rounds factors by up to 5e-4.
        (True, False, 1e-4, 5e-3),
        (True, True, 1e-4, 5e-3),
    ],
)
def test_losses_and_gradients(allow_tf32, compiled, of_losses, of_gradients):
    expected, of_cpu = losses_and_gradients('cpu')
    torch.compiler.reset()
    figures, of_gpu = losses_and_gradients(
        DEVICE, compiled, head__allow_tf32=allow_tf32
    )
    torch.testing.assert_close(figures, expected, rtol=of_losses, atol=1e-6)
    assert of_gpu.keys() == of_cpu.keys()
    for name, gradient in of_cpu.items():
        error = (of_gpu[name] - gradient).norm() / gradient.norm()
        assert error < of_gradients or gradient.norm() < 1e-6, (name, error)
