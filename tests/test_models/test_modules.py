# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import math

import pytest
import torch

from mmmoca.models import MOCAViT, OnlineCodebook, sincos_positions_2d

from ..helpers.builders import ARCH, codes_of

SIZE = dict(img_size=(32, 48), patch_size=8, in_channels=5)


@pytest.fixture
def vit():
    torch.manual_seed(0)
    model = MOCAViT(ARCH, **SIZE, tap_layer=2)
    model.init_weights()
    model.eval()  # mmpretrain's eval() returns None
    return model


def test_positions_are_maes():
    """Each entry follows the formula, on a grid that is not square."""
    positions = sincos_positions_2d((3, 5), 8).view(3, 5, 8)
    for row in range(3):
        for column in range(5):
            expected = [
                function(coordinate / 10000 ** (i / 2))
                for coordinate in (column, row)
                for function in (math.sin, math.cos)
                for i in range(2)
            ]
            actual = positions[row, column].tolist()
            assert actual == pytest.approx(expected, abs=1e-6)


def test_initialisation(vit):
    projection = vit.patch_embed.projection
    bound = math.sqrt(6 / (5 * 64 + 16))
    assert 0.95 * bound < projection.weight.abs().max() <= bound
    for name, parameter in vit.named_parameters():
        if name.endswith('bias'):
            assert not parameter.any(), name
    assert 0.01 < vit.cls_token.std() < 0.03
    assert not vit.pos_embed.requires_grad
    assert not vit.pos_embed[:, 0].any()
    torch.testing.assert_close(
        vit.pos_embed[0, 1:], sincos_positions_2d((4, 6), 16)
    )


def test_codebook_queue():
    torch.manual_seed(0)  # some words of three numbers have no positive one
    codebook = OnlineCodebook(
        3, (5, 6), num_words=6, num_new_words=2, border=1
    )
    inner = torch.arange(30).view(5, 6)[1:-1, 1:-1]
    assert torch.equal(codebook.inner, inner.flatten())
    assert (codebook.words >= 0).all()
    torch.testing.assert_close(codebook.words.norm(dim=1), torch.ones(6))
    # A checkpoint may come from a run with another number of new words.
    codebook.pointer.fill_(1)
    expected = codebook.words.clone()
    for start, accepted in ((1, True), (3, torch.tensor(True)), (5, True)):
        new = torch.rand(2, 3)
        for taken in (torch.tensor(False), accepted):
            codebook.update(new, torch.tensor([0.9]), accepted=taken)
        unit = new / new.norm(dim=1, keepdim=True)
        expected[start], expected[(start + 1) % 6] = unit
        torch.testing.assert_close(codebook.words, expected)
    assert int(codebook.pointer) == 1
    assert codebook.msd.item() == pytest.approx(0.9 - 0.4 * 0.99**3)


def test_centre():
    """Words and assignments use tokens minus the mean of their position."""
    torch.manual_seed(0)
    options = dict(num_words=8, num_new_words=4, border=1)
    codebook, plain = (
        OnlineCodebook(3, (3, 3), centre=centre, **options)
        for centre in (0.9, None)
    )
    plain.words.copy_(codebook.words)
    tokens = torch.randn(8, 9, 3)
    assert plain.mean_token(tokens) is None
    assert not any('mean' in name for name in plain.state_dict())
    unmoved = codebook.words[:0], torch.ones(0)
    for _ in range(2):
        codebook.update(*unmoved, codebook.mean_token(tokens))
    mean = 0.19 * tokens.mean(dim=0)
    codebook.update(*unmoved, mean / 0, torch.tensor(False))
    torch.testing.assert_close(codebook.token_mean, mean)
    assigned, drawn = [], []
    for book, given in ((codebook, tokens), (plain, tokens - mean)):
        assigned.append(codes_of(book.assign(given)))
        torch.manual_seed(1)
        drawn.append(book.draw_candidates(given))
    torch.testing.assert_close(*assigned)
    torch.testing.assert_close(*drawn)
    codebook.init_weights()
    assert not codebook.token_mean.any()
