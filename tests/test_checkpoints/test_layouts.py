# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Reading the ViT out of files of all layouts."""

import pytest
import torch
from mmpretrain.models.backbones import ResNet, SwinTransformer

from mmmoca.checkpoints import (
    CheckpointError,
    find_backbone,
    read_backbone,
    read_checkpoint,
    write_checkpoint,
)

from .files import LAYOUTS, PAIRED, SIZE, checkpoint, mm_vit, tokens

NAMES = {
    'classifier': 'mmpretrain',
    'dino-backbone': 'timm',
    'ibot-backbone': 'timm',
    'deit': 'timm',
}


def load(state_dict, **kwargs):
    model = mm_vit(seed=9, **kwargs)
    model.load_state_dict(state_dict)
    return model


@pytest.mark.parametrize('layout', LAYOUTS)
@pytest.mark.parametrize('zipped', [True, False])
def test_outputs_of_every_layout(tmp_path, layout, zipped):
    content, teacher, student = checkpoint(layout)
    path = tmp_path / 'a.pth'
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    backbone = read_backbone(path)
    assert backbone.layout == NAMES.get(layout, layout)
    assert backbone.which == ('teacher' if layout in PAIRED else 'only')
    assert backbone.grid == (4, 4)
    images = torch.randn(2, 3, SIZE, SIZE)
    expected = tokens(teacher, images)
    torch.testing.assert_close(
        tokens(load(backbone.state_dict), images),
        expected,
        atol=1e-5,
        rtol=1e-5,
    )
    if layout not in PAIRED:
        with pytest.raises(CheckpointError, match='--which'):
            read_backbone(path, 'student')
        return
    other = read_backbone(path, 'student')
    assert other.which == 'student'
    actual = tokens(load(other.state_dict), images)
    torch.testing.assert_close(
        actual, tokens(student, images), atol=1e-5, rtol=1e-5
    )
    assert (actual - expected).abs().max() > 0.1


def test_what_is_left_out_is_named():
    assert find_backbone(checkpoint('mae')[0]).ignored == [
        'mask_token',
        'decoder_pos_embed',
        'decoder_blocks.0.attn.qkv.weight',
    ]
    assert find_backbone(checkpoint('msn')[0]).ignored == ['fc.fc1.weight']
    # Found by the prefix, so that nothing beside them belongs to it.
    assert find_backbone(checkpoint('dino')[0]).ignored == []


def test_grids_that_are_not_square():
    content = checkpoint('mmmoca', (16, 72))[0]
    assert find_backbone(content).grid == (2, 9)
    # 36 patches would be a square, too; the record says what they are.
    content = checkpoint('mmmoca', (32, 72))[0]
    assert find_backbone(content).grid == (4, 9)
    del content['meta']
    assert find_backbone(content).grid == (6, 6)
    assert find_backbone(checkpoint('timm', (16, 72))[0]).grid is None


def without(*names):
    content = checkpoint('timm')[0]
    return {k: v for k, v in content.items() if k not in names}


def gated():
    content, name = checkpoint('timm')[0], 'blocks.0.mlp.fc1.weight'
    return content | {name: content[name].repeat(2, 1)}


@pytest.mark.parametrize(
    'content, message',
    [
        (ResNet(18).state_dict(), 'no ViT.*conv1.weight.* more$'),
        (dict(state_dict=SwinTransformer('tiny').state_dict()), 'no ViT'),
        (dict(epoch=3), 'no tensors'),
        *(
            (without() | {name: torch.ones(3)}, name)
            for name in ('blocks.0.attn.q_norm.weight', 'dist_token')
        ),
        (without() | dict(reg_token=torch.ones(3)), 'registers'),
        (gated(), 'SwiGLU'),
        (without('cls_token'), 'cls_token.*I-JEPA'),
        (without('pos_embed'), 'pos_embed'),
        (
            {f'{s}.{k}': v for s in 'ab' for k, v in without().items()},
            'a., b',
        ),
    ],
)
def test_files_that_are_not_read(content, message):
    with pytest.raises(CheckpointError, match=message):
        find_backbone(content)


def test_a_file_without_its_teacher():
    content = checkpoint('dino')[0]
    del content['teacher']
    with pytest.raises(CheckpointError, match='could be the teacher'):
        find_backbone(content)
    assert find_backbone(content, 'student').layout == 'dino'
    with pytest.raises(ValueError, match="'teacher' or 'student', but got"):
        find_backbone(content, 'ema')


@pytest.mark.parametrize('zipped', [True, False])
@pytest.mark.parametrize('share', [0, 0.5, 0.999])
def test_truncated_files(tmp_path, share, zipped):
    path = tmp_path / 'a.pth'
    content = checkpoint('moca')[0]
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(CheckpointError, match='truncated or no checkpoint'):
        read_checkpoint(path)


def test_files_of_other_kinds(tmp_path):
    for name, data in (
        ('page.pth', b'<html>Not found</html>'),
        ('pointer.pth', b'version https://git-lfs.github.com/spec/v1\n'),
        ('page.safetensors', b'<html>Not found</html>'),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(CheckpointError, match='truncated or no checkpo'):
            read_checkpoint(tmp_path / name)
    torch.save([torch.ones(1)], tmp_path / 'list.pth')
    with pytest.raises(CheckpointError, match='holds a list'):
        read_checkpoint(tmp_path / 'list.pth')
    with pytest.raises(CheckpointError, match='is no file on this machine'):
        read_checkpoint('https://host/a.pth')


@pytest.mark.parametrize('suffix', ['pth', 'safetensors'])
def test_written_checkpoints(tmp_path, suffix):
    path = tmp_path / 'new' / f'a.{suffix}'
    values = torch.arange(12.0).view(3, 4)
    # A view of more, and one that is not contiguous.
    state = {'a': values[1], 'b': values.T}
    write_checkpoint(dict(state_dict=state, meta={}), path)
    assert [child.name for child in path.parent.iterdir()] == [path.name]
    # Readable by whom any new file is.
    (tmp_path / 'any').touch()
    assert path.stat().st_mode == (tmp_path / 'any').stat().st_mode
    read = read_checkpoint(path)['state_dict']
    assert torch.equal(read['a'], values[1])
    assert torch.equal(read['b'], values.T)
