# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Files that are refused, by errors that name what does not fit."""

import pytest
import torch
from mmpretrain.models.backbones import ResNet, VisionTransformer

from mmmoca.checkpoints import CheckpointError, find_backbone
from mmmoca.checkpoints.fit import check_fit
from mmmoca.checkpoints.pretrained_init import check_pretrained_inits
from mmmoca.checkpoints.start import load_start

from ..helpers import checkpoint_files as files
from ..helpers.builders import build_moca
from ..helpers.errors import raises

TIMM, DINO = files.timm_state(), files.checkpoint('dino')[0]
PROJ = 'blocks.1.attn.proj.weight'
EXTRA = torch.ones(3)
# Queries and values without the keys, as in transformers.
NO_KEYS = dict.fromkeys(
    [f'blocks.0.attn.{part}.weight' for part in 'qv'], torch.ones(24, 24)
)
GATED = torch.ones(192, 24)  # twice as many rows as the next layer takes
TWO_TEACHERS = {
    f'teacher_{name}': value
    for prefix in ('a.', 'b.')
    for name, value in files.with_prefix(prefix, TIMM).items()
}


def find(content, which='teacher', weights=None):
    find_backbone(content, which, 'a.pth', weights)


def fit(state, model=None):
    check_fit(model or files.mm_vit(), state, None, 'a.pth')


def initialise(content, prefix=None, file='a.pth', **backbone):
    """By ``Pretrained`` in the config of a backbone."""
    torch.save(content, 'a.pth')
    init = dict(type='Pretrained', checkpoint=file, prefix=prefix)
    check_pretrained_inits(files.classifier(init_cfg=init, **backbone))


def start(state, kind='MOCAViT', dims=files.DIMS, heads=files.HEADS, **vit):
    """A pretraining."""
    torch.save(state, 'a.pth')
    arch = dict(embed_dims=dims, num_layers=2, num_heads=heads)
    vit = dict(img_size=files.SIZE, in_channels=3, tap_layer=1) | vit
    vit |= dict(
        type=f'mmmoca.{kind}', arch=arch | dict(feedforward_channels=4 * dims)
    )
    model = build_moca(**{f'backbone__{key}': v for key, v in vit.items()})
    load_start(model, 'a.pth')


def start_of(kind, *arguments, **options):
    """A pretraining, of a file with registers."""
    state = files.token_vit(kind, img_size=files.SIZE).state_dict()
    start(state, *arguments, **dict(dims=128, heads=2) | options)


def integer(name):
    state = files.mm_vit().state_dict()
    return state | {name: state[name].to(torch.int8)}


def wide():
    """As wide as DeiT-Ti."""
    return VisionTransformer(arch='deit-t', img_size=32).state_dict()


def other_channels():
    weight = torch.ones(files.DIMS, 4, 8, 8)
    state = files.mm_vit().state_dict()
    return state | {'patch_embed.projection.weight': weight}


def paired(size):
    return files.checkpoint('mmmoca', size)[0], 'teacher.'


LOST = 'blocks.0.attn.q_norm.weight'
REFUSALS = [
    (find, lambda: [ResNet(18).state_dict()], 'conv1.weight'),
    (find, lambda: [{}], 'a.pth'),
    (find, lambda: [files.timm_state(**NO_KEYS)], 'layers.0.attn.k.weight'),
    (find, lambda: [files.timm_state(**{LOST: EXTRA})], LOST),
    (find, lambda: [TIMM | {'blocks.0.mlp.fc1.weight': GATED}], 'a.pth'),
    (find, lambda: [TIMM | {'patch_embed.proj.weight': GATED}], 'a.pth'),
    (find, lambda: [files.timm_state(cls_token=None)], 'cls_token'),
    (find, lambda: [TWO_TEACHERS], '--which'),
    (find, lambda: [TIMM, 'student'], '--which'),
    (find, lambda: [dict(student=DINO['student'])], '--which'),
    (find, lambda: [TIMM, 'teacher', 'averaged'], 'averaged'),
    (find, lambda: [dict(state_dict_ema=TIMM), 'teacher', 'raw'], 'raw'),
    (find, lambda: [TIMM | {PROJ: TIMM[PROJ].to(torch.int8)}], 'layers.1.'),
    (find, lambda: [TIMM | {PROJ: TIMM[PROJ] * 1j}], 'layers.1.attn.proj'),
    (fit, lambda: [integer('ln1.bias')], 'ln1.bias'),
    (fit, lambda: [wide()], 'backbone.arch=deit-t'),
    (initialise, lambda: [files.checkpoint('mmmoca')[0]], 'teacher.'),
    (initialise, lambda: [other_channels()], 'in_channels'),
    (initialise, lambda: [{}, None, 'none.pth'], 'none.pth'),
    (start, lambda: [TIMM], 'patch_size', dict(patch_size=4)),
    (
        start,
        lambda: [TIMM],
        'positions=sincos',
        dict(patch_size=8, positions='rope', heads=2),
    ),
    (start, lambda: [files.timm_state(**{'norm.bias': None})], 'ln1.bias'),
    (start_of, lambda: ['RegisterViT'], 'type=mmmoca.RegisterViT'),
    (start_of, lambda: ['DINOv3ViT'], 'type=mmmoca.DINOv3ViT'),
    (
        start_of,
        lambda: ['RegisterViT', 'RegisterViT'],
        'num_registers=4',
        dict(num_registers=2),
    ),
    (
        start_of,
        lambda: ['DINOv3ViT', 'DINOv3ViT'],
        'num_registers=4',
        dict(num_registers=2),
    ),
    (
        start_of,
        lambda: ['DINOv3ViT', 'DINOv3ViT'],
        'arch.num_heads=2',
        dict(heads=4),
    ),
    (load_start, lambda: [files.classifier(), 'a.pth'], 'mmmoca-teacher://'),
    # Grids of as many patches, which mmpretrain would resize as squares.
    (
        initialise,
        lambda: paired((32, 72)),
        '--img-size 48 48',
        dict(img_size=(48, 48)),
    ),
    (
        initialise,
        lambda: paired((48, 48)),
        '--img-size 32 72 --interpolation bilinear',
        dict(img_size=(32, 72), interpolate_mode='bilinear'),
    ),
]


@pytest.mark.parametrize('row', REFUSALS, ids=lambda row: row[2])
def test_refusals(tmp_path, monkeypatch, row):
    monkeypatch.chdir(tmp_path)
    call, arguments, key, *options = row
    arguments = arguments()
    with raises(CheckpointError, key):
        call(*arguments, **options[0] if options else {})


def test_roles_that_there_are_not():
    with raises(ValueError, 'ema'):
        find_backbone(DINO, 'ema')
