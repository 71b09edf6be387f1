# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The ViT is found in files of all layouts."""

import pytest
import torch
from mmpretrain.models.selfsup.mocov3 import MoCoV3ViT

from mmmoca.checkpoints import (
    backbone_checkpoint,
    find_backbone,
    read_backbone,
    read_checkpoint,
    write_checkpoint,
)
from mmmoca.checkpoints.vit import num_heads_of

from ..helpers.checkpoint_files import checkpoint, timm_state, with_prefix
from ..helpers.runs import assert_same


def test_heads_that_only_moco_v3_has():
    """mmpretrain adds MoCo v3's network to the table of all ViTs."""
    vit = MoCoV3ViT(arch='mocov3-small', img_size=32, patch_size=16)
    state = vit.state_dict()
    backbone = find_backbone(dict(model_state_dict=state))
    assert (backbone.layout, num_heads_of(backbone)) == ('mmpretrain', 6)
    pair = with_prefix('backbone.', state)
    pair |= with_prefix('momentum_encoder.module.0.', state)
    backbone = find_backbone(dict(state_dict=pair))
    # A conversion records the layout, so it stays the same.
    again = find_backbone(backbone_checkpoint(backbone, 'a.pth'))
    for found in (backbone, again):
        assert (found.layout, num_heads_of(found)) == ('mocov3', 12)


def test_names_that_wrappers_lengthen():
    state = timm_state()
    for old, new in (
        ('blocks', 'blocks._fsdp_wrapped_module'),
        ('attn', '_checkpoint_wrapped_module.attn'),
        ('mlp', 'module._orig_mod.mlp.module'),
        ('', 'model.module.backbone._orig_mod.'),
    ):
        state = {k.replace(old, new, 1): v for k, v in state.items()}
    found = find_backbone(dict(state_dict=state))
    assert_same(found.state_dict, find_backbone(timm_state()).state_dict)


def averaged(state):
    return {name: value + 1 for name, value in state.items()}


TIMM = timm_state()
COUNTED = with_prefix('module.', averaged(TIMM)) | dict(
    n_averaged=torch.tensor(3)
)
BOTH = {
    'timm': dict(state_dict=TIMM, state_dict_ema=averaged(TIMM)),
    'counted': dict(model=TIMM, swa_model=COUNTED),
    'prefixes': dict(
        state_dict=with_prefix('model.', TIMM)
        | with_prefix('model_ema.module.', averaged(TIMM))
    ),
    # MMEngine's EMAHook swaps the two.
    'mmengine': dict(
        state_dict=with_prefix('backbone.', averaged(TIMM)),
        ema_state_dict=with_prefix('module.backbone.', TIMM)
        | dict(steps=torch.tensor(3)),
        message_hub={},
    ),
}


@pytest.mark.parametrize('kind', BOTH)
def test_raw_and_averaged_weights(tmp_path, kind):
    """By default, one of the two is used and named; either can be chosen."""
    path = tmp_path / 'a.pth'
    torch.save(BOTH[kind], path)
    raw = TIMM['cls_token']
    by_default = 'averaged' if kind == 'mmengine' else 'raw'
    for weights in (None, 'raw', 'averaged'):
        found = read_backbone(path, weights=weights)
        taken = weights or by_default
        expected = raw + 1 if taken == 'averaged' else raw
        assert torch.equal(found.state_dict['cls_token'], expected)
        assert taken in found.changes[0]


def test_the_only_weights_are_taken_whatever_they_are():
    only = dict(state_dict_ema=TIMM)
    assert 'averaged' in find_backbone(only).changes[0]
    assert find_backbone(TIMM, weights='raw').changes == ()


def test_an_averaged_teacher_is_the_teacher():
    both = with_prefix('student.', TIMM)
    both |= with_prefix('ema_teacher.', averaged(TIMM))
    for which, added in (('student', 0), ('teacher', 1)):
        found = find_backbone(both, which).state_dict['cls_token']
        assert torch.equal(found, TIMM['cls_token'] + added)


@pytest.mark.parametrize(
    'teacher, student, other',
    [
        ('backbone.', 'student_backbone.', None),  # lightly
        ('teacher.backbone.', 'student.backbone.', 'gram_teacher.backbone.'),
    ],
)
def test_a_teacher_that_only_its_companions_tell(teacher, student, other):
    both = with_prefix(teacher, averaged(TIMM)) | with_prefix(student, TIMM)
    if other:
        both |= with_prefix(other, TIMM)
    for which, added in (('student', 0), ('teacher', 1)):
        found = find_backbone(both, which).state_dict['cls_token']
        assert torch.equal(found, TIMM['cls_token'] + added)


def test_raw_teachers_and_students_beside_averaged_ones():
    """MMEngine's EMAHook writes such a file during pretraining."""
    raw = with_prefix('backbone.', TIMM)
    raw |= with_prefix('teacher.', averaged(TIMM))
    content = dict(
        state_dict=averaged(raw),
        ema_state_dict=with_prefix('module.', raw),
        message_hub={},
    )
    for number, weights in enumerate(('raw', 'averaged')):
        for which, added in (('student', 0), ('teacher', 1)):
            found = find_backbone(content, which, weights=weights)
            found = found.state_dict['cls_token']
            assert torch.equal(found, TIMM['cls_token'] + added + number)


def test_a_student_without_its_teacher():
    content = checkpoint('dino')[0]
    del content['teacher']
    assert find_backbone(content, 'student').layout == 'dino'


def test_files_of_other_kinds(tmp_path):
    """The content of a file determines its format; the suffix does not."""
    state = checkpoint('timm')[0]
    write_checkpoint(
        dict(state_dict=state, meta={}), tmp_path / 'a.safetensors'
    )
    (tmp_path / 'a.safetensors').rename(tmp_path / 'a.bin')
    torch.save(state, tmp_path / 'b.safetensors')
    assert_same(read_checkpoint(tmp_path / 'a.bin')['state_dict'], state)
    assert_same(read_checkpoint(tmp_path / 'b.safetensors'), state)


@pytest.mark.parametrize('suffix', ['pth', 'safetensors'])
def test_written_checkpoints(tmp_path, suffix):
    path = tmp_path / 'new' / f'a.{suffix}'
    values = torch.arange(12.0).view(3, 4)
    # A view of a larger tensor, and a tensor that is not contiguous.
    state = {'a': values[1], 'b': values.T}
    write_checkpoint(dict(state_dict=state, meta={}), path)
    assert [child.name for child in path.parent.iterdir()] == [path.name]
    # Its permissions are those of any new file.
    (tmp_path / 'any').touch()
    assert path.stat().st_mode == (tmp_path / 'any').stat().st_mode
    read = read_checkpoint(path)['state_dict']
    assert torch.equal(read['a'], values[1])
    assert torch.equal(read['b'], values.T)
