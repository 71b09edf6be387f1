# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Compare losses of targets other than assignments with a recomputation."""

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
from tests.helpers.builders import codes_of

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
    """Check the head's L_LOC and its gradients, and the bags of codes."""
    decoded, masks, targets = step
    leaves = [*decoded, *head.predictor.parameters()]
    loss, bags, msd = head.loss_loc(decoded, masks, targets)
    torch.testing.assert_close(loss, expected)
    gradients = torch.autograd.grad(loss, leaves)
    expected = torch.autograd.grad(expected, leaves)
    torch.testing.assert_close(gradients, expected)
    codes = codes_of(targets)
    torch.testing.assert_close(bags, codes[:, targets.inner].mean(dim=1))
    assert msd.shape == (6,)


def mean_of_rounds(step, indices, error):
    """Average an error over images and tokens, then over rounds.

    Args:
        step: Value of the fixture.
        indices (str): 'decoded' for all of the decoder's tokens, or
            'predicted' for those of the predicted patches, which come last.
        error: Function of a token, the index of its image and the index of its
            patch.
    """
    decoded, masks, _ = step
    rounds = []
    for x, mask in zip(decoded, masks):
        patches = getattr(mask, indices).tolist()
        errors = [
            error(token, image, patch)
            for image, row in enumerate(patches)
            for token, patch in zip(x[image, -len(row) :], row)
        ]
        rounds.append(torch.stack(errors).mean())
    return sum(rounds) / 2


def test_pixels(step):
    head = PixelHead(patch_size=PATCH, **SHAPE)
    images = step[2].images

    def error(token, image, patch):
        top, left = patch // 4 * PATCH, patch % 4 * PATCH
        pixels = images[image, :, top : top + PATCH, left : left + PATCH]
        pixels = pixels.flatten() - pixels.mean()
        pixels = pixels / (pixels.var() + 1e-6).sqrt()
        return (head.predictor(token) - pixels).square()

    assert_loss(head, step, mean_of_rounds(step, 'predicted', error))


def test_flat_patches_are_zero():
    assert not normalized_patches(torch.full((2, 3, 16, 24), 7.0), 8).any()


def test_embeddings(step):
    head = EmbeddingHead(**SHAPE)
    tokens = step[2].tokens

    def error(token, image, patch):
        found, token = head.predictor(token), tokens[image, patch]
        return 1 - found @ token / (found.norm() * token.norm())

    assert_loss(head, step, mean_of_rounds(step, 'decoded', error))


def test_two_decoders(step):
    """Loss and gradients are the sums of those of each head alone."""
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
    # The pair itself computes L_IMG; its heads compute only L_LOC.
    assert not hasattr(head.heads[0], 'img_generator')
    assert head.img_generator is not None


@pytest.mark.parametrize('name', ['table8c_both-decoders', 'table3_pixels'])
def test_decoders_read_their_own_layer(name, monkeypatch):
    """The plain decoder reads the last layer, the condenser the tap layer."""
    cfg = quick_start(name)
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    model = MODELS.build(cfg.model)
    model.init_weights()
    encode, encoded = model.backbone.encode_rounds, []
    monkeypatch.setattr(
        model.backbone,
        'encode_rounds',
        lambda *args: encoded.extend(encode(*args)) or encoded,
    )
    loss = model.loss(list(torch.randn(2, 2, 3, 48, 48)))['loss_loc']
    (tokens,) = encoded
    read = [x for x in (tokens.patches, tokens.tap) if x is not None]
    assert len(read) == (2 if name == 'table8c_both-decoders' else 1)
    assert all(x.norm() > 0 for x in torch.autograd.grad(loss, read))


ONE = dict(type='mmmoca.AssignmentHead')


@pytest.mark.parametrize(
    'name, changes, word',
    [
        ('table3_pixels', {'neck.condenser': True}, 'condenser'),
        (
            'table8f_pixels_both-decoders',
            {'head.targets.0.condenser': True},
            'condenser',
        ),
        ('table8c_both-decoders', {'head.targets': [ONE]}, 'decoders'),
    ],
)
def test_bad_pairs(name, changes, word):
    cfg = Config.fromfile(CONFIGS / f'{name}.py')
    cfg.merge_from_dict({'model.backbone.tap_layer': 8})
    cfg.merge_from_dict({f'model.{key}': changes[key] for key in changes})
    init_default_scope(cfg.default_scope)
    with torch.device('meta'), pytest.raises(ValueError, match=word):
        MODELS.build(cfg.model)
