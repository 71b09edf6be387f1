# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""``init_cfg=dict(type='Pretrained', ...)`` is checked before it is used."""

import pytest
import torch
from mmengine.model import PretrainedInit
from mmpretrain.models.backbones import VisionTransformer
from mmpretrain.registry import MODELS

from mmmoca.checkpoints import CheckpointError
from mmmoca.checkpoints.fit import check_fit
from mmmoca.checkpoints.names import TIMM
from mmmoca.checkpoints.pretrained_init import check_pretrained_inits

from ..helpers.checkpoint_files import (
    DIMS,
    checkpoint,
    classifier,
    mm_config,
    mm_vit,
    randomise,
)
from ..helpers.runs import assert_same

KINDS = dict(
    VisionTransformer='mmpretrain.VisionTransformer',
    DeiT='mmpretrain.DistilledVisionTransformer',
    MOCAViT='mmmoca.MOCAViT',
)


@pytest.fixture
def build(tmp_path):
    """A model whose backbone has a Pretrained init of what a file holds."""

    def write_and_build(content, prefix=None, scheme='', **backbone):
        torch.save(content, tmp_path / 'a.pth')
        file = f'{scheme}{tmp_path}/a.pth'
        init = dict(type='Pretrained', checkpoint=file, prefix=prefix)
        return classifier(init_cfg=init, **backbone)

    return write_and_build


@pytest.mark.parametrize(
    ('layout', 'scheme', 'prefix'),
    [
        ('mmmoca', '', 'teacher.'),
        ('moca', '', 'backbone'),
        ('dino', 'mmmoca-teacher://', 'backbone.'),
    ],
)
def test_pretrained_backbones(build, tmp_path, layout, scheme, prefix):
    content, teacher, student = checkpoint(layout)
    is_student = prefix == 'backbone'
    expected = (student if is_student else teacher).state_dict()
    if layout != 'mmmoca':
        expected = {TIMM.to_mmpretrain(k): v for k, v in expected.items()}
    model = build(content, prefix, scheme)
    (report,) = check_pretrained_inits(model)
    total = len(expected)
    assert f'a.pth): {total} of {total} names of the model match' in report
    assert ("This is a pretraining run's student" in report) == is_student
    assert 'missing' not in report
    (tmp_path / 'a.pth').unlink()  # it was read once
    model.init_weights()
    assert check_pretrained_inits(model) == []
    assert_same(model.backbone.state_dict(), expected)


@pytest.mark.parametrize('kind', ['VisionTransformer', 'DeiT', 'MOCAViT'])
@pytest.mark.parametrize(
    'types',
    [[PretrainedInit], ['mmengine.Pretrained'], ['Normal', 'Pretrained']],
)
def test_no_initialisation_overwrites_them(tmp_path, kind, types):
    """Whatever the form of ``init_cfg``; our ViT needs no check for that."""
    config = mm_config(type=KINDS[kind], out_type='cls_token')
    source = randomise(MODELS.build(config), 3).state_dict()
    torch.save(source, tmp_path / 'a.pth')
    file = dict(checkpoint=str(tmp_path / 'a.pth'))
    inits = [
        dict(type=name, **dict(layer='Linear') if name == 'Normal' else file)
        for name in types
    ]
    config['init_cfg'] = inits if len(inits) > 1 else inits[0]
    model = MODELS.build(config)
    if kind != 'MOCAViT' or types[0] == 'mmengine.Pretrained':
        check_pretrained_inits(model)
    model.init_weights()
    assert_same(model.state_dict(), source)


def test_prefixes_that_fit_nothing(build):
    message = "has backbone., .*write prefix='teacher.'.*mmmoca-teacher://FILE"
    with pytest.raises(CheckpointError, match=message):
        check_pretrained_inits(build(checkpoint('mmmoca')[0]))


def test_pretrained_partly(build):
    state = mm_vit().state_dict()
    other = {'patch_embed.projection.weight': torch.ones(DIMS, 4, 8, 8)}
    with pytest.raises(CheckpointError, match='in_channels'):
        check_pretrained_inits(build(state | other))
    state['ln3.bias'] = state.pop('ln1.bias')
    (report,) = check_pretrained_inits(build(state))
    assert '1 missing (ln1.bias); 1 unexpected (ln3.bias)' in report
    missing = classifier(init_cfg=dict(type='Pretrained', checkpoint='a.pth'))
    with pytest.raises(CheckpointError, match='no file a.pth'):
        check_pretrained_inits(missing)


def test_encoder_of_another_size():
    """mmpretrain's 's' is as wide as a ViT-B, and no ViT-S."""
    with torch.device('meta'):
        small, other = (VisionTransformer(arch=x) for x in ('deit-s', 's'))
    with pytest.raises(CheckpointError, match='backbone.arch=deit-s,? '):
        check_fit(other, small.state_dict(), {}, 'a.pth')


@pytest.mark.parametrize(
    ('trained', 'size', 'mode', 'message'),
    [  # grids of as many patches
        ((32, 72), (48, 48), 'bicubic', '4 x 9.*--img-size 48 48$'),
        ((48, 48), (32, 72), 'bilinear', '6 x 6.*--img-size 32 72 .*bilinear'),
    ],
)
def test_positions_that_mmpretrain_would_spoil(
    build, trained, size, mode, message
):
    content = checkpoint('mmmoca', trained)[0]
    vit = dict(img_size=size, interpolate_mode=mode)
    model = build(content, 'teacher.', **vit)
    with pytest.raises(CheckpointError, match=message):
        check_pretrained_inits(model)
