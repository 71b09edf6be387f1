# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Losses and gradients of the other targets, computed anew."""

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mmmoca.models import MaskingPlan, OnlineCodebook
from projects.paper_ablations.decoders import PairHead
from projects.paper_ablations.run import CONFIGS, quick_start
from projects.paper_ablations.targets import (
    EmbeddingHead,
    PixelHead,
    normalized_patches,
)

D, WIDTH, SIDE, PATCH = 16, 12, 32, 8
SHAPE = dict(embed_dims=D, decoder_dims=WIDTH)


@pytest.fixture
def step():
    """Images, targets, masks and decoder tokens of two rounds."""
    torch.manual_seed(0)
    images = torch.randn(6, 3, SIDE, SIDE)
    codebook = OnlineCodebook(D, (4, 4), num_words=8, border=1)
    targets = codebook.assign(torch.randn(6, 16, D), images)
    masks = MaskingPlan(16, (0.5, 0.75), (0.25, 0.5)).draw(6, images.device)
    decoded = [
        torch.randn(*mask.decoded.shape, WIDTH, requires_grad=True)
        for mask in masks
    ]
    return decoded, masks, targets


def assert_loss(head, step, expected):
    """The head's L_LOC, its gradients, and bags that do not depend on it."""
    decoded, masks, targets = step
    leaves = [*decoded, *head.predictor.parameters()]
    loss, bags, msd = head.loss_loc(decoded, masks, targets)
    torch.testing.assert_close(loss, expected)
    gradients = torch.autograd.grad(loss, leaves)
    expected = torch.autograd.grad(expected, leaves)
    torch.testing.assert_close(gradients, expected)
    codes = targets.codes()
    torch.testing.assert_close(bags, codes[:, targets.inner].mean(dim=1))
    assert msd.shape == (6,)


def test_pixels(step):
    head = PixelHead(patch_size=PATCH, **SHAPE)
    decoded, masks, targets = step
    rounds = []
    for x, mask in zip(decoded, masks):
        errors = []
        for image in range(6):
            for place, patch in enumerate(mask.predicted[image].tolist()):
                top, left = patch // 4 * PATCH, patch % 4 * PATCH
                pixels = targets.images[
                    image, :, top : top + PATCH, left : left + PATCH
                ].flatten()
                pixels = pixels - pixels.mean()
                pixels = pixels / (pixels.var() + 1e-6).sqrt()
                token = x[image, mask.visible.shape[1] + place]
                errors.append((head.predictor(token) - pixels).square())
        rounds.append(torch.stack(errors).mean())
    assert_loss(head, step, sum(rounds) / 2)


def test_flat_patches_are_zero():
    assert not normalized_patches(torch.full((2, 3, 16, 24), 7.0), 8).any()


def test_embeddings(step):
    head = EmbeddingHead(**SHAPE)
    decoded, masks, targets = step
    rounds = []
    for x, mask in zip(decoded, masks):
        distances = []
        for image in range(6):
            for place, patch in enumerate(mask.decoded[image].tolist()):
                found = head.predictor(x[image, place])
                token = targets.tokens[image, patch]
                cosine = found @ token / (found.norm() * token.norm())
                distances.append(1 - cosine)
        rounds.append(torch.stack(distances).mean())
    assert_loss(head, step, sum(rounds) / 2)


def test_two_decoders(step):
    """The sum of what each head would say alone, gradients included."""
    parts = [
        dict(type='mmmoca.AssignmentHead'),
        dict(type='mmmoca.PixelHead', patch_size=PATCH, lambda_img=0.0),
    ]
    head = PairHead(parts, embed_dims=D, decoder_dims=(WIDTH, WIDTH))
    decoded, masks, targets = step
    other = [torch.randn_like(x, requires_grad=True) for x in decoded]
    loss, bags, msd = head.loss_loc([*zip(decoded, other)], masks, targets)
    first, *expected = head.heads[0].loss_loc(decoded, masks, targets)
    second, *_ = head.heads[1].loss_loc(other, masks, targets)
    torch.testing.assert_close(loss, first + second)
    torch.testing.assert_close([bags, msd], expected)
    leaves = [*decoded, *other, *head.heads.parameters()]
    gradients = torch.autograd.grad(loss, leaves)
    expected = torch.autograd.grad(first + second, leaves)
    torch.testing.assert_close(gradients, expected)
    # L_IMG is the pair's own.
    assert not hasattr(head.heads[0], 'img_generator')
    assert head.img_generator is not None


@pytest.mark.parametrize('name', ['table8c_both-decoders', 'table3_pixels'])
def test_decoders_read_their_own_layer(name):
    """The plain decoder reads the last layer, the condenser the tapped."""
    cfg = quick_start(name)
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    model = MODELS.build(cfg.model)
    model.init_weights()
    encoded = []
    encode = model.backbone.encode

    def noted(*args):
        tokens = encode(*args)
        for part in (tokens.patches, tokens.tap):
            if part is not None:
                part.retain_grad()
        encoded.append(tokens)
        return tokens

    model.backbone.encode = noted
    losses = model.loss(list(torch.randn(2, 2, 3, 48, 48)))
    losses['loss_loc'].backward()
    (tokens,) = encoded
    assert tokens.patches.grad.norm() > 0
    if name == 'table8c_both-decoders':
        assert tokens.tap.grad.norm() > 0
    else:
        assert tokens.tap is None


@pytest.mark.parametrize(
    ('name', 'changes', 'word'),
    [
        (
            'table3_pixels',
            {'neck.condenser': True, 'backbone.tap_layer': 8},
            'condenser',
        ),
        (
            'table8f_pixels_both-decoders',
            {'head.targets.0.condenser': True},
            'condenser',
        ),
        (
            'table8c_both-decoders',
            {'head.targets': [dict(type='mmmoca.AssignmentHead')]},
            'decoders',
        ),
    ],
)
def test_bad_pairs(name, changes, word):
    cfg = Config.fromfile(CONFIGS / f'{name}.py')
    cfg.merge_from_dict({f'model.{key}': changes[key] for key in changes})
    init_default_scope(cfg.default_scope)
    with torch.device('meta'), pytest.raises(ValueError, match=word):
        MODELS.build(cfg.model)
