# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""``init_cfg=dict(type='Pretrained', ...)`` is checked before it is used."""

import pytest
import torch
from mmpretrain.registry import MODELS
from torch.nn.functional import interpolate

import mmmoca  # noqa: F401  for its scheme of checkpoints
from mmmoca.checkpoints import (
    CheckpointError,
    check_pretrained_inits,
    convert_timm_name,
    convert_to_timm_name,
)

from ..runs import assert_same
from .files import DIMS, SIZE, checkpoint, mm_config


@pytest.fixture
def save(tmp_path):
    """Write what a file holds; its path."""

    def write(content):
        path = str(tmp_path / 'a.pth')
        torch.save(content, path)
        return path

    return write


def classifier(path, prefix=None, img_size=SIZE, **backbone):
    """A model whose backbone, the small ViT, has a Pretrained init."""
    init = dict(type='Pretrained', checkpoint=path, prefix=prefix)
    backbone = mm_config(img_size, init_cfg=init, **backbone)
    head = dict(type='LinearClsHead', num_classes=3, in_channels=DIMS)
    return MODELS.build(
        dict(type='ImageClassifier', backbone=backbone, head=head)
    )


def refused(message, path, **options):
    with pytest.raises(CheckpointError, match=message):
        check_pretrained_inits(classifier(path, **options))


@pytest.mark.parametrize('layout', ['mmmoca', 'moca'])
def test_pretrained_backbones(save, layout):
    content, teacher, student = checkpoint(layout)
    path = save(content)
    total = len(teacher.state_dict())
    for prefix, expected in (('teacher.', teacher), ('backbone', student)):
        model = classifier(path, prefix)
        (report,) = check_pretrained_inits(model)
        assert f'backbone ({path}): {total} of its {total} names' in report
        assert ("This is a pretraining run's student" in report) == (
            prefix == 'backbone'
        )
        model.init_weights()
        assert check_pretrained_inits(model) == []
        state = expected.state_dict()
        if layout == 'moca':
            state = {convert_timm_name(k): v for k, v in state.items()}
        assert_same(model.backbone.state_dict(), state)

    for wrong in (None, 'encoder.'):
        refused(
            "the file has backbone., .*write prefix='teacher.'",
            path,
            prefix=wrong,
        )


def test_pretrained_files_of_other_layouts(save):
    content, teacher, _ = checkpoint('dino')
    path = save(content)
    refused('mmmoca-teacher://FILE', path)
    model = classifier(f'mmmoca-teacher://{path}', 'backbone.')
    (report,) = check_pretrained_inits(model)
    model.init_weights()
    assert 'unexpected' not in report and 'missing' not in report
    expected = teacher.state_dict()
    for name, value in model.backbone.state_dict().items():
        assert torch.equal(value, expected[convert_to_timm_name(name)])

    path = save(checkpoint('mmpretrain')[1].state_dict())
    refused('cls_token', path, prefix='a')
    path = save({'conv1.weight': torch.ones(2)})
    refused('conv1', path)
    refused('no file on this machine', 'none.pth')


def test_pretrained_partly(save):
    state = checkpoint('mmpretrain')[1].state_dict()
    path = save(state | {'ln3.bias': state.pop('ln1.bias')})
    (report,) = check_pretrained_inits(classifier(path))
    assert '1 missing (ln1.bias); 1 unexpected (ln3.bias)' in report
    state['patch_embed.projection.weight'] = torch.ones(DIMS, 4, 8, 8)
    refused('in_channels', save(state))
    state['patch_embed.projection.weight'] = torch.ones(DIMS, 3, 9, 8)
    refused(r'\(9, 8\)|9, 8', save(state))
    sizes = dict(embed_dims=384, num_layers=12, feedforward_channels=1536)
    small = mm_config(arch=dict(sizes, num_heads=6))
    path = save(MODELS.build(small).state_dict())
    refused('384', path)
    bias = 'layers.0.attn.qkv.bias'
    state = checkpoint('mmpretrain')[1].state_dict()
    refused(f'1 of another shape .{bias}', save(state | {bias: torch.ones(3)}))


def test_frozen_encoders_are_loaded_whole(save):
    """A file without a final norm, as MAE's fine-tuned ones."""
    state = checkpoint('timm')[0]
    for name in ('weight', 'bias'):
        state[f'fc_norm.{name}'] = state.pop(f'norm.{name}')
    source = f'mmmoca-teacher://{save(dict(model=state))}', 'backbone.'
    message = 'ln1.bias.*final_norm=False'
    with pytest.raises(CheckpointError, match=message):
        check_pretrained_inits(classifier(*source, frozen_stages=2))
    (report,) = check_pretrained_inits(classifier(*source))
    assert '2 missing (ln1.bias, ln1.weight)' in report  # trained anew
    pooled = dict(out_type='avg_featmap', final_norm=False)
    (report,) = check_pretrained_inits(
        classifier(*source, frozen_stages=2, **pooled)
    )
    assert 'missing' not in report


def test_pretrained_positions_of_other_sizes(save):
    """Square grids are resized rightly; what would go wrong is refused."""
    content, teacher, _ = checkpoint('mmmoca', 32)
    model = classifier(save(content), 'teacher.', (64, 48))
    check_pretrained_inits(model)
    model.init_weights()
    grid = teacher.pos_embed[:, 1:].unflatten(1, (4, 4)).permute(0, 3, 1, 2)
    expected = interpolate(grid, (8, 6), mode='bicubic').flatten(2).mT
    torch.testing.assert_close(model.backbone.pos_embed[:, 1:], expected)
    for trained, size, options, message in (
        ((32, 72), (48, 48), {}, '4 x 9'),  # of as many patches
        ((32, 72), (64, 48), {}, '4 x 9'),
        ((48, 48), (32, 72), {}, r'6 x 6.*--img-size 32 72$'),
        (
            *((48, 48), (32, 72), dict(interpolate_mode='bilinear')),
            'bilinear$',
        ),
    ):
        path = save(checkpoint('mmmoca', trained)[0])
        refused(message, path, prefix='teacher.', img_size=size, **options)
