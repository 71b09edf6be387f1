# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""``init_cfg=dict(type='Pretrained', ...)`` is checked before it is used."""

import pytest
import torch
from mmengine.model import PretrainedInit
from mmpretrain.registry import MODELS

from mmmoca.checkpoints.names import TIMM
from mmmoca.checkpoints.pretrained_init import check_pretrained_inits

from ..helpers.checkpoint_files import (
    checkpoint,
    classifier,
    mm_config,
    mm_vit,
    randomise,
    with_prefix,
)
from ..helpers.runs import assert_same

KINDS = dict(
    VisionTransformer='mmpretrain.VisionTransformer',
    DeiT='mmpretrain.DistilledVisionTransformer',
    MOCAViT='mmmoca.MOCAViT',
)


@pytest.fixture
def build(tmp_path):
    """Return a function that builds a model with a Pretrained backbone."""

    def write_and_build(content, prefix=None, **backbone):
        file = str(tmp_path / 'a.pth')
        torch.save(content, file)
        init = dict(type='Pretrained', checkpoint=file, prefix=prefix)
        return classifier(init_cfg=init, **backbone)

    return write_and_build


def test_a_final_norm_that_a_pyramid_has_no_use_for(build):
    """MMEngine would warn of the unused norm."""
    state = with_prefix('backbone.', mm_vit().state_dict())
    model = build(dict(state_dict=state), 'backbone.', final_norm=False)
    check_pretrained_inits(model)
    loaded = model.backbone.init_cfg['checkpoint'].take()['state_dict']
    assert loaded.keys() == model.backbone.state_dict().keys()
    assert len(loaded) == len(state) - 2


@pytest.mark.parametrize(
    ('layout', 'prefix'), [('mmmoca', 'teacher.'), ('moca', 'backbone')]
)
def test_files_of_pairs_by_their_prefix(build, tmp_path, layout, prefix):
    """The prefix chooses the encoder; test_libraries tests the schemes."""
    content, teacher, student = checkpoint(layout)
    is_student = prefix == 'backbone'
    expected = (student if is_student else teacher).state_dict()
    if layout != 'mmmoca':
        expected = {TIMM.to_mmpretrain(k): v for k, v in expected.items()}
    model = build(content, prefix)
    ((report, note, _),) = check_pretrained_inits(model)
    assert f'{len(expected)} of {len(expected)}' in report
    assert ('teacher.' in note) == is_student  # the file has it, too
    (tmp_path / 'a.pth').unlink()  # the file was read once
    model.init_weights()
    assert check_pretrained_inits(model) == []
    assert_same(model.backbone.state_dict(), expected)


def test_pretrained_of_a_whole_model_is_the_teacher(tmp_path):
    """The teacher is loaded, as with ``load_from``.

    Judged by names alone, the student would match.
    """
    content, teacher, _ = checkpoint('mmmoca')
    torch.save(content, tmp_path / 'a.pth')
    model = classifier()
    whole = dict(type='Pretrained', checkpoint=str(tmp_path / 'a.pth'))
    model.init_cfg = whole
    ((report, _, _),) = check_pretrained_inits(model)
    assert 'teacher' in report
    model.init_weights()
    assert_same(model.backbone.state_dict(), teacher.state_dict())


@pytest.mark.parametrize('kind', ['VisionTransformer', 'DeiT', 'MOCAViT'])
@pytest.mark.parametrize(
    'types',
    [[PretrainedInit], ['mmengine.Pretrained'], ['Normal', 'Pretrained']],
)
def test_no_initialisation_overwrites_them(tmp_path, kind, types):
    """Pretrained weights are kept, whatever the form of ``init_cfg``.

    Our own ViT needs no check for this.
    """
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


def test_what_is_loaded_in_part_is_said(build):
    state = mm_vit().state_dict()
    state['ln3.bias'] = state.pop('ln1.bias')
    ((report, _, _),) = check_pretrained_inits(build(state))
    assert 'ln1.bias' in report and 'ln3.bias' in report
