# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Reading the ViT out of files of all layouts."""

import pytest
import torch
from mmpretrain.models.backbones import ResNet
from mmpretrain.models.selfsup.mocov3 import MoCoV3ViT

from mmmoca.checkpoints import (
    CheckpointError,
    backbone_checkpoint,
    find_backbone,
    read_backbone,
    read_checkpoint,
    write_checkpoint,
)
from mmmoca.checkpoints.fit import check_fit
from mmmoca.checkpoints.vit import num_heads_of

from ..helpers.checkpoint_files import (
    assert_same_tokens,
    checkpoint,
    mm_vit,
    timm_state,
    with_prefix,
)
from ..helpers.runs import assert_same

PAIRED = 'mmmoca', 'moca', 'dino', 'msn', 'mocov3'
# Files of one encoder, and what they are taken for.
ALONE = {
    'classifier': 'mmpretrain',
    'ibot-backbone': 'timm',
    'mae': 'mae',
    'deit': 'timm',
    'timm': 'timm',
}
TWO_TEACHERS = {
    f'teacher_{name}': value
    for prefix in ('a.', 'b.')
    for name, value in with_prefix(prefix, timm_state()).items()
}
EXTRA = torch.ones(3)
# Queries and values without the keys, as in transformers.
NO_KEYS = dict.fromkeys(
    [f'blocks.0.attn.{part}.weight' for part in 'qv'], torch.ones(24, 24)
)
GATED = torch.ones(192, 24)  # twice as many rows as the next layer takes


@pytest.mark.parametrize('layout', [*PAIRED, *ALONE])
def test_outputs_of_every_layout(tmp_path, layout):
    content, *models = checkpoint(layout)
    path = tmp_path / 'a.pth'
    # Some are of the time before PyTorch's archives.
    zipped = layout not in ('dino', 'deit')
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    for which, expected in zip(('teacher', 'student'), models):
        if which == 'student' and layout in ALONE:
            with pytest.raises(CheckpointError, match='--which'):
                read_backbone(path, which)
            break
        backbone = read_backbone(path, which)
        assert backbone.layout == ALONE.get(layout, layout)
        assert backbone.which == (which if layout in PAIRED else 'only')
        assert backbone.grid == (4, 4)
        model = mm_vit(seed=9)
        model.load_state_dict(backbone.state_dict)
        assert_same_tokens(model, expected)


def test_heads_that_only_moco_v3_has():
    """mmpretrain adds its network to the table of all ViTs."""
    vit = MoCoV3ViT(arch='mocov3-small', img_size=32, patch_size=16)
    state = vit.state_dict()
    backbone = find_backbone(dict(model_state_dict=state))
    assert (backbone.layout, num_heads_of(backbone)) == ('mmpretrain', 6)
    pair = with_prefix('backbone.', state)
    pair |= with_prefix('momentum_encoder.module.0.', state)
    backbone = find_backbone(dict(state_dict=pair))
    # Also after a conversion, which records it.
    again = find_backbone(backbone_checkpoint(backbone, 'a.pth'))
    for found in (backbone, again):
        assert (found.layout, num_heads_of(found)) == ('mocov3', 12)


@pytest.mark.parametrize(
    'content, message',
    [
        (ResNet(18).state_dict(), 'no ViT.*conv1.weight.* more$'),
        ({}, 'nothing'),
        (timm_state(**NO_KEYS), 'all three of .*layers.0.attn.k.weight'),
        (timm_state(**{'blocks.0.attn.q_norm.weight': EXTRA}), 'q_norm'),
        (timm_state(**{'blocks.0.mlp.fc1.weight': GATED}), 'SwiGLU'),
        (timm_state(**{'patch_embed.proj.weight': GATED}), '2-D'),
        (timm_state(cls_token=None), 'cls_token.*I-JEPA'),
        (TWO_TEACHERS, 'has 2 encoders that could be the teacher'),
    ],
)
def test_files_that_are_not_read(content, message):
    with pytest.raises(CheckpointError, match=message):
        find_backbone(content)


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
    # Its hook swaps the two.
    'mmengine': dict(
        state_dict=with_prefix('backbone.', averaged(TIMM)),
        ema_state_dict=with_prefix('module.backbone.', TIMM)
        | dict(steps=torch.tensor(3)),
        message_hub={},
    ),
}


@pytest.mark.parametrize('kind', BOTH)
def test_raw_and_averaged_weights(tmp_path, kind):
    """One of the two is taken and named, either can be chosen."""
    path = tmp_path / 'a.pth'
    torch.save(BOTH[kind], path)
    raw = TIMM['cls_token']
    by_default = 'averaged' if kind == 'mmengine' else 'raw'
    for weights in (None, 'raw', 'averaged'):
        found = read_backbone(path, weights=weights)
        taken = weights or by_default
        expected = raw + 1 if taken == 'averaged' else raw
        assert torch.equal(found.state_dict['cls_token'], expected)
        assert f'its {taken} weights' in found.changes[0]


def test_weights_that_a_file_lacks():
    only = dict(state_dict_ema=TIMM)
    assert 'averaged' in find_backbone(only).changes[0]
    assert find_backbone(TIMM, weights='raw').changes == ()
    for content, missing in ((TIMM, 'averaged'), (only, 'raw')):
        with pytest.raises(CheckpointError, match=f'no {missing}'):
            find_backbone(content, weights=missing)


@pytest.mark.parametrize('kind', [torch.int8, torch.complex64])
def test_weights_that_are_no_real_numbers(kind):
    wrong = TIMM['blocks.1.attn.proj.weight'].to(kind)
    with pytest.raises(CheckpointError, match='layers.1.attn.proj.weight'):
        find_backbone(timm_state(**{'blocks.1.attn.proj.weight': wrong}))
    model = mm_vit()
    state = model.state_dict()
    state['ln1.bias'] = state['ln1.bias'].to(kind)
    with pytest.raises(CheckpointError, match='ln1.bias'):
        check_fit(model, state, None, 'a')


def test_a_file_without_its_teacher():
    content = checkpoint('dino')[0]
    del content['teacher']
    with pytest.raises(CheckpointError, match='could be the teacher'):
        find_backbone(content)
    assert find_backbone(content, 'student').layout == 'dino'
    with pytest.raises(ValueError, match="'teacher' or 'student', but got"):
        find_backbone(content, 'ema')


def test_files_of_other_kinds(tmp_path):
    """Archives that are cut off are a matter of robustness."""
    path = tmp_path / 'legacy.pth'
    content = checkpoint('moca')[0]
    torch.save(content, path, _use_new_zipfile_serialization=False)
    for name, data in (
        ('most.pth', path.read_bytes()[:-100]),
        ('empty.pth', b'PK\5\6' + bytes(18)),  # an archive of nothing
        ('page.pth', b'<html>Not found</html>'),
        ('page.safetensors', b'<html>Not found</html>'),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(CheckpointError, match='truncated or no checkpo'):
            read_checkpoint(tmp_path / name)
    # Formats go by the content, not by the name.
    state = checkpoint('timm')[0]
    write_checkpoint(
        dict(state_dict=state, meta={}), tmp_path / 'a.safetensors'
    )
    (tmp_path / 'a.safetensors').rename(tmp_path / 'a.bin')
    torch.save(state, tmp_path / 'b.safetensors')
    assert_same(read_checkpoint(tmp_path / 'a.bin')['state_dict'], state)
    assert_same(read_checkpoint(tmp_path / 'b.safetensors'), state)
    torch.save([torch.ones(1)], tmp_path / 'list.pth')
    with pytest.raises(CheckpointError, match='holds a list'):
        read_checkpoint(tmp_path / 'list.pth')
    with pytest.raises(CheckpointError, match='there is no file'):
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
