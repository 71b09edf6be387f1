# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Registers and rotary positions; test_libraries compares with libraries."""

import pytest
import torch

from mmmoca.models import MOCAViT

ARCH = dict(embed_dims=32, num_layers=2, num_heads=2, feedforward_channels=48)


def vit(**options):
    torch.manual_seed(0)
    defaults = dict(arch=ARCH, img_size=(24, 32), patch_size=8, tap_layer=1)
    model = MOCAViT(**defaults | options)
    model.init_weights()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.eval()
    return model


@pytest.mark.parametrize(
    'options',
    [
        {},
        dict(num_registers=3),
        dict(positions='rope'),
        dict(num_registers=4, positions='rope'),
    ],
)
def test_outputs_carry_no_register(options):
    """Without registers, outputs equal mmpretrain's forward pass."""
    model = vit(out_type='raw', out_indices=[0, 1], **options)
    images = torch.randn(2, 3, 16, 40)  # another grid
    found = model.encode(images)
    assert found.patches.shape == found.tap.shape == (2, 10, 32)
    first, last = model(images)
    torch.testing.assert_close(first[:, 1:], found.tap)
    torch.testing.assert_close(last[:, 0], found.cls)
    torch.testing.assert_close(last[:, 1:], found.patches)
    model.out_type, model.out_indices = 'featmap', [1]
    (maps,) = model(images)
    torch.testing.assert_close(maps.flatten(2).mT, found.patches)
    # The last rows and columns are padded, as in mmpretrain.
    filled = torch.nn.functional.pad(images[:, :, :-2, :-7], (0, 7, 0, 2))
    (expected,) = model(filled)
    torch.testing.assert_close(model(images[:, :, :-2, :-7])[0], expected)
    # The order of the patches does not matter, as each has its position.
    order = torch.stack([torch.randperm(10) for _ in range(2)])
    shuffled = model.encode(images, order)
    torch.testing.assert_close(shuffled.cls, found.cls)
    rows = order[..., None].expand(-1, -1, 32)
    for name in ('patches', 'tap'):
        expected = getattr(found, name).gather(1, rows)
        torch.testing.assert_close(getattr(shuffled, name), expected)
    # Rounds side by side do not affect each other.
    rounds = [order[:, :4], None, order[:, 3:9]]
    for visible, tokens in zip(rounds, model.encode_rounds(images, rounds)):
        expected = model.encode(images, visible)
        torch.testing.assert_close(tuple(tokens), tuple(expected))
    for name in ('register_tokens', 'cls_token'):
        if hasattr(model, name):
            assert model.get_layer_depth(f'a.{name}', 'a.') == (0, 4)
            with torch.no_grad():
                getattr(model, name).add_(torch.randn(32))
            assert not torch.allclose(model(images)[0], maps)


@pytest.mark.parametrize('half', [False, True])
def test_half_residuals(half):
    """Half residuals change tokens between layers, and only under autocast."""
    model = vit(half_residuals=half)
    types = []
    for layer in model.layers:
        layer.register_forward_hook(lambda *args: types.append(args[2].dtype))
    images = torch.randn(2, 3, 24, 32)
    expected = model.encode(images)
    assert types == [torch.float32] * 2
    with torch.autocast('cpu', torch.bfloat16):
        found = model.encode(images)
    assert types[2:] == [torch.bfloat16 if half else torch.float32] * 2
    for one, other in zip(found, expected):
        error = (one.float() - other).norm() / other.norm()
        assert 0 < error < 0.02


def test_rotary_positions_are_those_of_the_file():
    model = vit(positions='rope')
    state = model.state_dict()
    assert 'pos_embed' not in state
    with pytest.raises(RuntimeError, match='pos_embed'):
        model.load_state_dict(state | dict(pos_embed=torch.zeros(1, 13, 32)))
    del state['rotary_periods']
    with pytest.raises(RuntimeError, match='rotary_periods'):
        model.load_state_dict(state)
