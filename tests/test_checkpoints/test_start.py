# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pretraining starts from weights of other methods and libraries."""

import pytest
import torch
from torch.nn import functional as F

from ..helpers import checkpoint_files as files
from ..helpers.builders import build_moca
from ..helpers.runs import assert_same

DINOV2 = dict(init_values=0.3)


def moca(**changes):
    """Build a pretraining model with the ViT sizes of ``files``."""
    vit = files.mm_config(in_channels=3)
    names = 'arch', 'img_size', 'patch_size', 'in_channels'
    settings = {f'backbone__{name}': vit[name] for name in names}
    return build_moca(**settings | changes)


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a model from a file, as a run does.

    The function returns the first log line, and the others as one text.
    """

    def load(model, content):
        path = tmp_path / 'start.pth'
        torch.save(content, path)
        lines = files.load_as_a_run(model, f'mmmoca-start://{path}')
        return lines[0], ' '.join(lines[1:])

    return load


def assert_starts(model, expected):
    """Check that teacher and student compute the same as an RGB model."""
    projection = model.backbone.patch_embed.projection
    shape = 2, projection.in_channels, *model.backbone.img_size
    images = torch.randn(shape)
    for vit in (model.teacher, model.backbone):
        vit.eval()  # returns None in mmpretrain
        with torch.no_grad():
            encoded = vit.encode(images)
        files.assert_close(
            torch.cat((encoded.cls[:, None], encoded.patches), dim=1),
            files.tokens(expected, images.expand(-1, 3, -1, -1)),
        )
    assert not any(p.requires_grad for p in model.teacher.parameters())


def test_an_encoder_fills_nothing_else(start):
    """test_libraries checks what the encoder then computes."""
    content, teacher, _ = files.checkpoint('dino')
    model = moca()
    before = {k: v.clone() for k, v in model.neck.state_dict().items()}
    matched, changes = start(model, content)
    total = len(teacher.state_dict())
    assert f'backbone {total}/{total}' in matched
    assert changes == '' and ', codebook 0/3,' in matched
    assert_same(model.neck.state_dict(), before)


def test_layer_scale(start):
    """Factors are merged in float32; in float16, weights could vanish.

    A model that has LayerScale itself gets factors of 1.
    """
    source = files.mm_vit(layer_scale_init_value=0.3)
    state = {k: v.half() for k, v in source.state_dict().items()}
    source.load_state_dict({k: v.float() for k, v in state.items()})
    state['mask_token'] = torch.ones(1, files.DIMS)
    model = moca(backbone__layer_scale_init_value=1e-5)
    _, changes = start(model, state)
    assert 'LayerScale' in changes
    assert_starts(model, source)
    assert (model.teacher.layers[1].ffn.gamma2.weight == 1).all()


def test_own_pretraining(start):
    """Codebook, decoder and generators are loaded where they fit."""
    source = files.randomise(moca(), seed=5)
    state = {k: v.clone() for k, v in source.state_dict().items()}
    model = moca()
    matched, changes = start(model, state)
    assert_same(model.state_dict(), state)
    assert changes == '' and 'layout mmmoca)' in matched
    assert 'codebook 3/3' in matched

    model = moca(codebook__num_words=8, neck__embed_dims=12)
    expected = {k: v.clone() for k, v in model.state_dict().items()}
    matched, changes = start(model, dict(state_dict=state, meta={}))
    for part in ('codebook', 'neck', 'head.loc_generator'):
        assert f'its {part} ' in changes
    words = len(state['codebook.words'])
    assert changes.count(f'num_words={words}') == 1
    fitting = ('backbone', 'teacher', 'head.img_generator')
    expected |= {k: v for k, v in state.items() if k.startswith(fitting)}
    assert_same(model.state_dict(), expected)
    assert 'codebook 0/3' in matched


def test_own_words_for_images_of_another_size(start):
    """The mean token of each position is resized like the positions."""
    source = moca(codebook__centre=0.9)
    source.codebook.token_mean.copy_(torch.arange(16.0)[:, None])
    side = 2 * files.SIZE
    model = moca(codebook__centre=0.9, backbone__img_size=side)
    matched, _ = start(model, source.state_dict())
    assert 'codebook 4/4' in matched
    mean = model.codebook.token_mean.unflatten(0, (8, 8))
    pooled = F.avg_pool2d(mean.permute(2, 0, 1)[None], 2)
    expected = source.codebook.token_mean.unflatten(0, (4, 4))
    inner = slice(1, 3)  # edges are extended
    torch.testing.assert_close(
        pooled[0].permute(1, 2, 0)[inner, inner], expected[inner, inner]
    )


@pytest.mark.parametrize('channels', [1, 3])
def test_other_sizes(start, channels):
    """DINOv2's patches and grid are adapted, even to one-channel images."""
    vit = dict(DINOV2, patch_size=14)
    source = files.timm_vit(**vit, img_size=7 * 14, dynamic_img_size=False)
    size = dict(img_size=56, patch_size=14, in_channels=channels)
    model = moca(**{f'backbone__{key}': n for key, n in size.items()})
    _, changes = start(model, source.state_dict())
    assert 'positions are resized from (7, 7) to (4, 4) patches' in changes
    assert ('its 3 channels become 1' in changes) == (channels == 1)
    expected = files.timm_vit(**vit, img_size=56)
    positions = model.backbone.pos_embed.detach()
    expected.load_state_dict(source.state_dict() | dict(pos_embed=positions))
    assert_starts(model, expected)
