# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pretraining that starts from weights of other methods and libraries."""

import pytest
import torch
from mmengine.runner.checkpoint import CheckpointLoader

from mmmoca.checkpoints import (
    CheckpointError,
    check_fit,
    fit_start,
    read_backbone,
)

from ..builders import build_moca
from ..runs import assert_same
from .files import (
    DEPTH,
    DIMS,
    HEADS,
    LAYOUTS,
    PATCH,
    SIZE,
    checkpoint,
    huggingface,
    mm_vit,
    randomise,
    timm_vit,
    tokens,
    with_prefix,
)

DINOV2 = dict(init_values=0.3)
REGISTERS = dict(init_values=0.3, reg_tokens=4, no_embed_class=True)


def moca(**changes):
    """A model of pretraining whose ViTs are those of ``files``."""
    arch = dict(
        embed_dims=DIMS,
        num_layers=DEPTH,
        num_heads=HEADS,
        feedforward_channels=4 * DIMS,
    )
    settings = dict(arch=arch, img_size=SIZE, patch_size=PATCH, in_channels=3)
    settings = {f'backbone__{key}': value for key, value in settings.items()}
    return build_moca(**settings | changes)


@pytest.fixture
def start(tmp_path):
    """Start a model from what a file holds; what is said of it."""

    def load(model, content, suffix='pth'):
        path = tmp_path / f'start.{suffix}'
        if suffix == 'safetensors':
            from safetensors.torch import save_file

            save_file(content, path)
        else:
            torch.save(content, path)
        read = CheckpointLoader.load_checkpoint(f'mmmoca-start://{path}')
        matched, changes = fit_start(read, model, model.state_dict())
        check_fit(model, read['state_dict'], read['meta'], 'start.pth')
        model.load_state_dict(read['state_dict'], strict=False)
        return matched, ' '.join(changes)

    return load


def encode(vit, size=SIZE):
    """Tokens of an image and of these patches of it alone."""
    images = torch.randn(2, 3, size, size, generator=torch.Generator())
    vit.eval()  # which mmpretrain's models do not return
    with torch.no_grad():
        encoded = vit.encode(images)
    return images, torch.cat((encoded.cls[:, None], encoded.patches), dim=1)


def assert_starts(model, teacher, student=None, size=SIZE):
    """Teacher and student compute what these models do."""
    for vit, expected in (
        (model.teacher, teacher),
        (model.backbone, student or teacher),
    ):
        images, actual = encode(vit, size)
        torch.testing.assert_close(
            actual, tokens(expected, images), atol=1e-5, rtol=1e-5
        )
    assert not any(p.requires_grad for p in model.teacher.parameters())


@pytest.mark.parametrize('layout', LAYOUTS)
def test_every_layout(start, layout):
    content, teacher, student = checkpoint(layout)
    model = moca()
    before = {k: v.clone() for k, v in model.neck.state_dict().items()}
    matched, changes = start(model, content)
    total = len(teacher.state_dict())
    assert f'backbone {total}/{total}' in matched
    if layout not in ('mmmoca', 'moca'):  # those of others have no place here
        student = teacher
        assert changes == '' and ', codebook 0/3,' in matched
    assert_starts(model, teacher, student)
    assert_same(model.neck.state_dict(), before)


def chunked(state):
    """Blocks in chunks, as runs of DINOv2 have them beside a student."""
    return dict(
        teacher={
            f'backbone.{name}'.replace('blocks.', 'blocks.0.'): value
            for name, value in state.items()
        }
    )


@pytest.mark.parametrize('layout', [dict, chunked])
def test_layer_scale_of_dinov2(start, layout):
    expected = timm_vit(**DINOV2)
    state = expected.state_dict() | dict(mask_token=torch.ones(1, DIMS))
    # A model with LayerScale of its own gets factors of 1.
    for model in (moca(), moca(backbone__layer_scale_init_value=1e-5)):
        _, changes = start(model, layout(state))
        assert changes.startswith('start.pth: its LayerScale is multiplied')
        assert_starts(model, expected)
    assert (model.teacher.layers[1].ffn.gamma2.weight == 1).all()


def test_layer_scale_of_mmpretrain(start):
    expected = mm_vit(layer_scale_init_value=0.3)
    model = moca()
    start(model, expected.state_dict())
    assert_starts(model, expected)


def test_layer_scale_in_half_precision(start):
    """Factors of 1e-5 times weights of 1e-2 are nothing in float16."""
    expected = timm_vit(**DINOV2)
    state = {k: v.half() for k, v in expected.state_dict().items()}
    expected.load_state_dict({k: v.float() for k, v in state.items()})
    model = moca()
    start(model, state)
    assert_starts(model, expected)


def test_registers_are_left_out(start, tmp_path):
    """timm's [CLS] has its position added to it."""
    state = timm_vit(**REGISTERS).state_dict()
    plain = timm_vit(**REGISTERS | dict(reg_tokens=0))  # as DeiT III
    plain.load_state_dict(state, strict=False)
    for content in (plain.state_dict(), state):
        model = moca()
        _, changes = start(model, content)
        left_out = 'its 4 registers are left out' in changes
        assert left_out == (content is state)
        assert_starts(model, plain)
    with pytest.raises(CheckpointError, match='reg_token'):
        read_backbone(tmp_path / 'start.pth')


@pytest.mark.parametrize('kind', ['vit4', 'vit5', 'dinov2-4', 'dinov2-5'])
@pytest.mark.parametrize('suffix', ['bin', 'safetensors'])
def test_names_of_transformers(start, kind, suffix):
    expected, state = huggingface(kind)
    beside = ('pooler.dense.weight', 'embeddings.mask_token')
    if kind == 'vit4':  # ViTForImageClassification
        state = with_prefix('vit.', state)
        beside = ('classifier.weight',)
    state |= {name: torch.ones(3, 2) for name in beside}
    model = moca()
    matched, _ = start(model, state, suffix)
    assert 'layout huggingface)' in matched
    assert_starts(model, expected)
    del state[next(name for name in state if 'key' in name or 'k_p' in name)]
    with pytest.raises(CheckpointError, match='layers.0.attn.k'):
        start(model, state)


def test_own_pretraining(start):
    """Codebook, decoder and generators too, where they fit."""
    source = randomise(moca(), seed=5)
    state = {k: v.clone() for k, v in source.state_dict().items()}
    for content in (state, dict(state_dict=state, meta={})):
        model = moca()
        matched, changes = start(model, content)
        assert_same(model.state_dict(), state)
        assert changes == '' and 'layout mmmoca)' in matched
        assert 'codebook 3/3' in matched

    model = moca(codebook__num_words=8, neck__embed_dims=12)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    matched, changes = start(model, dict(state_dict=state, meta={}))
    after = model.state_dict()
    for part in ('codebook', 'neck', 'head.loc_generator'):
        assert f'its {part} is of another size' in changes
        part = {n for n in after if n.startswith(part)}
        assert_same(*({n: s[n] for n in part} for s in (after, before)))
    part = {n for n in after if n.startswith(('teacher', 'head.img'))}
    assert_same(*({n: s[n] for n in part} for s in (after, state)))
    assert 'codebook 0/3' in matched


def test_patches_of_14_pixels(start):
    """DINOv2's patch and grid."""
    expected = timm_vit(
        **DINOV2, patch_size=14, img_size=7 * 14, dynamic_img_size=False
    )
    size = dict(backbone__img_size=56, backbone__patch_size=14)
    model = moca(**size)
    _, changes = start(model, expected.state_dict())
    assert 'positions are resized from (7, 7) to (4, 4) patches' in changes
    resized = timm_vit(**DINOV2, patch_size=14, img_size=56)
    positions = model.backbone.pos_embed.detach()
    resized.load_state_dict(expected.state_dict() | dict(pos_embed=positions))
    assert_starts(model, resized, size=56)


def test_other_channels(start):
    expected = timm_vit()
    model = moca(backbone__in_channels=1)
    _, changes = start(model, expected.state_dict())
    assert 'its 3 channels become 1' in changes
    grey = torch.randn(2, 1, SIZE, SIZE)
    with torch.no_grad():
        actual = model.teacher.encode(grey).cls
    images = grey.expand(-1, 3, -1, -1)
    torch.testing.assert_close(
        actual, tokens(expected, images)[:, 0], atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (dict(patch_size=4), 'patch_size'),
        (dict(arch='deit-t'), 'arch'),
        (dict(qkv_bias=False), 'layers.0.attn.qkv.bias'),
    ],
)
def test_other_architectures(start, changes, message):
    changes = {f'backbone__{key}': value for key, value in changes.items()}
    with pytest.raises(CheckpointError, match=message):
        start(moca(**changes), checkpoint('timm')[0])


def test_files_of_no_use(start):
    state = checkpoint('timm')[0]
    del state['norm.bias']
    with pytest.raises(CheckpointError, match='ln1.bias'):
        start(moca(), state)
    with pytest.raises(CheckpointError, match='no ViT'):
        start(moca(), {'conv1.weight': torch.ones(2)})
    with pytest.raises(CheckpointError, match='mmmoca-teacher://start.pth'):
        start(mm_vit(), checkpoint('timm')[0])
