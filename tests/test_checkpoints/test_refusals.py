# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Files are refused with errors that name what does not fit."""

import io
from pathlib import Path

import pytest
import torch
from mmpretrain.models.backbones import ResNet, VisionTransformer

from mmmoca.checkpoints import (
    CheckpointError,
    find_backbone,
    read_checkpoint,
)
from mmmoca.checkpoints.fit import check_fit
from mmmoca.checkpoints.pretrained_init import check_pretrained_inits
from mmmoca.checkpoints.start import load_start

from ..helpers import checkpoint_files as files
from ..helpers.builders import build_moca
from ..helpers.errors import raises

TIMM, DINO = files.timm_state(), files.checkpoint('dino')[0]
PROJ = 'blocks.1.attn.proj.weight'
EXTRA = torch.ones(3)
# Queries and values without the keys, named as in transformers.
NO_KEYS = dict.fromkeys(
    [f'blocks.0.attn.{part}.weight' for part in 'qv'], torch.ones(24, 24)
)
BILINEAR = dict(interpolate_mode='bilinear')
TWO = dict(alike=True, num_registers=2)
GATED = torch.ones(192, 24)  # twice as many rows as the next layer accepts
TWO_TEACHERS = {
    f'teacher_{name}': value
    for prefix in ('a.', 'b.')
    for name, value in files.with_prefix(prefix, TIMM).items()
}


def find(content, which='teacher', weights=None):
    find_backbone(content, which, 'a.pth', weights)


def find_with(**parts):
    """Find the encoder in a timm file with some parts changed."""
    find(files.timm_state(**parts))


def fit(state, model=None):
    check_fit(model or files.mm_vit(), state, None, 'a.pth')


def initialise(content, prefix=None, file='a.pth', **backbone):
    """Initialise a backbone with ``Pretrained`` in its config."""
    torch.save(content, 'a.pth')
    init = dict(type='Pretrained', checkpoint=file, prefix=prefix)
    check_pretrained_inits(files.classifier(init_cfg=init, **backbone))


def prefixed(*starts):
    return {f'{start}{k}': v for start in starts for k, v in TIMM.items()}


def untyped(init):
    check_pretrained_inits(files.classifier(init_cfg=init))


def read(content, name):
    Path(name).write_bytes(content)
    read_checkpoint(name)


def start(state, kind='MOCAViT', dims=files.DIMS, heads=files.HEADS, **vit):
    """Start pretraining from some weights."""
    torch.save(state, 'a.pth')
    arch = dict(embed_dims=dims, num_layers=2, num_heads=heads)
    vit = dict(img_size=files.SIZE, in_channels=3, tap_layer=1) | vit
    vit |= dict(
        type=f'mmmoca.{kind}', arch=arch | dict(feedforward_channels=4 * dims)
    )
    model = build_moca(**{f'backbone__{key}': v for key, v in vit.items()})
    load_start(model, 'a.pth')


def start_of(kind, alike=False, **options):
    """Start pretraining from a file with registers."""
    state = files.token_vit(kind, img_size=files.SIZE).state_dict()
    own = kind if alike else 'MOCAViT'
    start(state, own, **dict(dims=128, heads=2) | options)


def integer(name):
    state = files.mm_vit().state_dict()
    return state | {name: state[name].to(torch.int8)}


def wide():
    """Return the weights of a ViT as wide as DeiT-Ti."""
    return VisionTransformer(arch='deit-t', img_size=32).state_dict()


def shallow():
    """Return the weights of a ViT whose sizes have no name."""
    arch = dict(embed_dims=48, num_layers=1, num_heads=3)
    arch['feedforward_channels'] = 96
    return VisionTransformer(arch=arch, img_size=32).state_dict()


def shallower():
    """Return the weights of a ViT with fewer layers, but the same shapes."""
    state = files.mm_vit().state_dict()
    return {n: v for n, v in state.items() if not n.startswith('layers.1.')}


def other_channels():
    weight = torch.ones(files.DIMS, 4, 8, 8)
    state = files.mm_vit().state_dict()
    return state | {'patch_embed.projection.weight': weight}


def scores(number, **vit):
    """Return a classifier with a given number of classes."""
    head = dict(type='LinearClsHead', in_channels=files.DIMS)
    return files.classifier(head | dict(num_classes=number), **vit)


def of_grid(size, **backbone):
    """Initialise from a grid that mmpretrain would take for a square."""
    content = files.checkpoint('mmmoca', size)[0]
    initialise(content, 'teacher.', **backbone)


def written(content, **options):
    """Return the bytes of a checkpoint file."""
    torch.save(content, file := io.BytesIO(), **options)
    return file.getvalue()


LEGACY = dict(_use_new_zipfile_serialization=False)
MOST = written(files.checkpoint('moca')[0], **LEGACY)[:-100]
EMPTY, PAGE = b'PK\5\6' + bytes(18), b'<html>Not found</html>'
LOST = 'blocks.0.attn.q_norm.weight'
REFUSALS = [
    ('conv1.weight', lambda: find(ResNet(18).state_dict())),
    ('a.pth', lambda: find({})),
    ('layers.0.attn.k.weight', lambda: find_with(**NO_KEYS)),
    (LOST, lambda: find_with(**{LOST: EXTRA})),
    ('a.pth', lambda: find_with(**{'blocks.0.mlp.fc1.weight': GATED})),
    ('a.pth', lambda: find_with(**{'patch_embed.proj.weight': GATED})),
    ('cls_token', lambda: find_with(cls_token=None)),
    ('layers.1.attn.proj', lambda: find_with(**{PROJ: TIMM[PROJ].int()})),
    ('layers.1.attn.proj', lambda: find_with(**{PROJ: TIMM[PROJ] * 1j})),
    (
        'layers.1.attn.proj',
        lambda: find_with(**{PROJ: TIMM[PROJ].to(torch.float8_e4m3fn)}),
    ),
    ('--which', lambda: find(TWO_TEACHERS)),
    ('--which', lambda: find(TIMM, 'student')),
    ('--which', lambda: find(dict(student=DINO['student']))),
    ('--which', lambda: find(prefixed('student.'))),
    ('--which', lambda: find(prefixed('student.', 'gram_teacher.'))),
    ('averaged', lambda: find(TIMM, weights='averaged')),
    ('raw', lambda: find(dict(state_dict_ema=TIMM), weights='raw')),
    ('ln1.bias', lambda: fit(integer('ln1.bias'))),
    ('backbone.arch=deit-t', lambda: fit(wide())),
    ('arch.num_heads=N,', lambda: fit(shallow())),
    ('backbone.arch.num_layers=1', lambda: fit(shallower())),
    ('num_classes', lambda: fit(scores(3).state_dict(), scores(4))),
    (
        'patch_size',
        lambda: fit(scores(3, in_channels=4).state_dict(), scores(4)),
    ),
    ("type='Pretrained'", lambda: untyped(dict(checkpoint='a.pth'))),
    ('checkpoint=', lambda: untyped(dict(type='Pretrained'))),
    ('teacher.', lambda: initialise(files.checkpoint('mmmoca')[0])),
    ('in_channels', lambda: initialise(other_channels())),
    ('modelzoo://no', lambda: initialise({}, file='modelzoo://no')),
    ('open-mmlab://no', lambda: initialise({}, file='open-mmlab://no')),
    ('mmcls://no', lambda: initialise({}, file='mmcls://no')),
    ('s3://no', lambda: initialise({}, file='s3://no/a.pth')),
    ('is truncated', lambda: read(b'PK\x03\x04 no archive', 'a.pth')),
    ('is truncated', lambda: read(b'{}', 'a.safetensors')),
    ('most.pth', lambda: read(MOST, 'most.pth')),
    ('empty.pth', lambda: read(EMPTY, 'empty.pth')),
    ('page.pth', lambda: read(PAGE, 'page.pth')),
    ('page.safetensors', lambda: read(PAGE, 'page.safetensors')),
    ('list.pth', lambda: read(written([EXTRA]), 'list.pth')),
    ('none.pth', lambda: read_checkpoint('none.pth')),
    ('none.pth', lambda: initialise({}, file='none.pth')),
    ('--img-size 48 48', lambda: of_grid((32, 72), img_size=(48, 48))),
    (
        '--img-size 32 72 --interpolation bilinear',
        lambda: of_grid((48, 48), img_size=(32, 72), **BILINEAR),
    ),
    ('backbone.patch_size=8', lambda: start(TIMM, patch_size=4)),
    ('positions=sincos', lambda: start(TIMM, heads=2, positions='rope')),
    ('ln1.bias', lambda: start(files.timm_state(**{'norm.bias': None}))),
    ('mmmoca-teacher://', lambda: load_start(files.classifier(), 'a.pth')),
    ('type=mmmoca.RegisterViT', lambda: start_of('RegisterViT')),
    ('type=mmmoca.DINOv3ViT', lambda: start_of('DINOv3ViT')),
    ('num_registers=4', lambda: start_of('RegisterViT', **TWO)),
    ('num_registers=4', lambda: start_of('DINOv3ViT', **TWO)),
    ('num_heads=2', lambda: start_of('DINOv3ViT', alike=True, heads=4)),
]


@pytest.mark.parametrize(('key', 'call'), REFUSALS)
def test_refusals(tmp_path, monkeypatch, key, call):
    monkeypatch.chdir(tmp_path)
    with raises(CheckpointError, key):
        call()


def test_roles_that_there_are_not():
    with raises(ValueError, 'ema'):
        find_backbone(DINO, 'ema')
