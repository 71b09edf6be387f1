# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Converted checkpoints give the same outputs in both libraries."""

import hashlib

import pytest
import torch
from mmengine.runner import load_checkpoint
from timm.models import adapt_input_conv
from timm.models import load_checkpoint as timm_load_checkpoint

from mmmoca.checkpoints import (
    build_vit,
    preprocessing_of,
    read_backbone,
    read_checkpoint,
)
from mmmoca.engine.hooks.teacher_ema_hook import update_teacher
from mmmoca.version import __version__

from ..helpers import checkpoint_files as files
from ..helpers.golden import CASES, Case, build, released
from ..helpers.runs import assert_same
from ..helpers.tools import run_tool


@pytest.fixture
def convert(tmp_path):
    """Return a function that converts content and returns the new file.

    With an exit status, the tool must fail, and its last line is returned.
    """

    def run(content, *options, suffix='pth', code=0):
        source, target = tmp_path / 'in.pth', tmp_path / f'out.{suffix}'
        torch.save(content, source)
        script = 'tools/model_converters/convert.py'
        printed = run_tool(script, source, target, *options, code=code)
        print(printed)  # for capsys
        return printed.splitlines()[-1] if code else target

    return run


def loaded(path, **kwargs):
    """Return mmpretrain's ViT with the weights of a file."""
    init = dict(type='Pretrained', checkpoint=str(path), prefix='backbone.')
    model = files.mm_vit(seed=9, init_cfg=init, **kwargs)
    model.init_weights()
    return model


def test_raw_weights_beside_averaged_ones(convert):
    """A run with MMEngine's EMAHook saves both."""
    state = files.mm_vit().state_dict()
    raw = {f'module.backbone.{name}': v + 1 for name, v in state.items()}
    both = dict(
        state_dict=files.with_prefix('backbone.', state),
        ema_state_dict=raw | dict(steps=torch.tensor(3)),
        message_hub={},
    )
    for options, added in (((), 0), (('--weights', 'raw'), 1)):
        found = read_backbone(convert(both, *options)).state_dict['cls_token']
        assert torch.equal(found, state['cls_token'] + added)


def test_extracted_backbones(convert, capsys):
    """test_libraries compares the tokens of extracted backbones."""
    convert(files.checkpoint('mae')[0])
    assert 'decoder_blocks.0.attn' in capsys.readouterr().out  # left out
    path = convert(files.checkpoint('moca')[0], '--which', 'student')
    for which in ('teacher', 'student'):  # the file has one encoder
        assert read_backbone(path, which)[1:3] == ('moca', 'student')


def test_records_of_what_was_made(convert, tmp_path):
    """A file records its source, and the run's record of images and heads."""
    content, _, _ = files.checkpoint('mmmoca')
    content['meta']['mmmoca']['preprocessing'] = dict(
        mean=[1.0, 2.0, 3.0],
        std=[4.0, 5.0, 6.0],
        pipeline=[
            dict(type='LoadImage'),
            dict(type='ResizeEdge', scale=40),
            dict(type='CenterCrop', crop_size=32),
        ],
    )
    path = convert(content, suffix='safetensors')
    before, after = map(read_backbone, (tmp_path / 'in.pth', path))
    assert preprocessing_of(after) == preprocessing_of(before)
    assert preprocessing_of(after).resize == 40
    assert build_vit(after).arch_settings['num_heads'] == 3
    made = dict(
        source='in.pth',
        sha256=hashlib.sha256((tmp_path / 'in.pth').read_bytes()).hexdigest(),
        layout='mmmoca',
        which='teacher',
        feature='avg',
        version=__version__,
    )
    content = read_checkpoint(path)
    assert made.items() <= content['meta']['mmmoca'].items()
    # A converted file can be a source itself.
    again = convert(content)
    assert_same(read_checkpoint(again)['state_dict'], content['state_dict'])


@pytest.mark.parametrize(
    ('layout', 'trained', 'options'),
    [
        ('moca', (32, 32), ['--interpolation', 'bilinear']),
        # 36 patches could be a square, too.
        ('moca', (32, 72), ['--source-grid', 4, 9]),
        ('mmmoca', (32, 72), []),  # its config has the grid
    ],
)
def test_resized_positions(convert, layout, trained, options):
    """The test itself computes the positions at another size."""
    content, teacher, _ = files.checkpoint(layout, trained)
    path = convert(content, '--img-size', 48, 80, *options)
    grid = (trained[0] // 8, trained[1] // 8)
    patches = teacher.pos_embed[:, 1:].unflatten(1, grid).permute(0, 3, 1, 2)
    mode = 'bilinear' if 'bilinear' in options else 'bicubic'
    patches = torch.nn.functional.interpolate(patches, (6, 10), mode=mode)
    patches = patches.flatten(2).transpose(1, 2)
    expected = torch.cat((teacher.pos_embed[:, :1], patches), dim=1)
    content = read_checkpoint(path)
    assert content['meta']['mmmoca']['grid'] == (6, 10)
    files.assert_close(content['state_dict']['backbone.pos_embed'], expected)
    files.assert_close(loaded(path, img_size=(48, 80)).pos_embed, expected)


@pytest.mark.parametrize('channels', [1, 7])
def test_other_input_channels(convert, channels):
    content, teacher, _ = files.checkpoint('timm')
    path = convert(content, '--in-channels', channels)
    files.assert_close(
        loaded(path, in_channels=channels).patch_embed.projection.weight,
        adapt_input_conv(channels, teacher.patch_embed.proj.weight),
    )


def test_backbones_in_timm(convert):
    """timm strictly loads the files that test_libraries reads."""
    content, teacher, _ = files.checkpoint('mmmoca')
    for suffix in ('pth', 'safetensors'):
        path = convert(content, '--to', 'timm', suffix=suffix)
        model = files.timm_vit(seed=9)
        timm_load_checkpoint(model, str(path), strict=True)
        files.assert_same_tokens(model, teacher)
    # and back again
    back = convert(read_checkpoint(path))
    files.assert_same_tokens(loaded(back), teacher)


def test_an_encoder_of_bgr_images_is_not_one_of_timm(convert):
    content, *_ = files.checkpoint('mmmoca')
    images = dict(channel_order='bgr', mean=[1.0] * 3, std=[1.0] * 3)
    content['meta']['mmmoca']['preprocessing'] = images
    assert 'export.py' in convert(content, '--to', 'timm', code=2)


@pytest.mark.slow
@pytest.mark.parametrize('name', CASES[1:3])
def test_the_full_released_model(convert, tmp_path, capsys, name):
    """Every tensor equals the one in test_golden's model."""
    case = Case(name)
    expected = build(case).state_dict()
    path = convert(released(case), '--to', 'moca')
    output = capsys.readouterr().out
    assert f'converted: {len(expected)}; left out: 11' in output
    model = build(case)
    model.init_weights()
    load_checkpoint(model, str(path), strict=True)
    # A pretraining that starts from the release itself has the same tensors.
    started = build(case)
    files.load_as_a_run(started, f'mmmoca-start://{tmp_path}/in.pth')
    assert_same(started.state_dict(), model.state_dict())
    mu = case['state_dict/bow_extractor.bow_extractor.0._dist_norm']
    assert float(model.codebook.msd) == float(mu)

    # As in build(): the case starts with the EMA update, and gives the mu of
    # the previous step separately.
    update_teacher(model.teacher, model.backbone, float(case['momentum']))
    model.codebook.msd.copy_(case['dist_norm_prev_before'][0])
    for key, value in model.state_dict().items():
        assert torch.equal(value, expected[key]), key


def test_a_release_of_other_shapes(convert, tmp_path):
    name = 'decoder_blocks_full.0.norm1.weight'
    content = released(Case('two_rounds'), **{name: torch.ones(3)})
    assert name in convert(content, '--to', 'moca', code=2)
    assert [path.name for path in tmp_path.iterdir()] == ['in.pth']
