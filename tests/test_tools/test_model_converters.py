# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Converters of checkpoints, by outputs of the models on both sides."""

import hashlib
from argparse import Namespace

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

from ..images import write_images
from ..runs import demo_runner
from ..test_checkpoints.files import (
    SIZE,
    checkpoint,
    mm_vit,
    timm_vit,
    tokens,
)
from ..test_models.test_golden import CASES, Case, build
from ..tools import run_tool

IMAGES = torch.randn(2, 3, SIZE, SIZE, generator=torch.Generator())


@pytest.fixture
def convert(tmp_path):
    """Run a converter on what a file holds; gives the file it wrote.

    With an exit status it must fail, and gives the line that says why.
    """

    def run(tool, content, *options, suffix='pth', code=0):
        source, target = tmp_path / 'in.pth', tmp_path / f'out.{suffix}'
        torch.save(content, source)
        script = f'tools/model_converters/{tool}.py'
        printed = run_tool(script, source, target, *options, code=code)
        print(printed)  # for capsys
        return printed.splitlines()[-1] if code else target

    return run


def same(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def loaded(path, **kwargs):
    """mmpretrain's ViT with what the file has, loaded as Pretrained does."""
    model = mm_vit(
        seed=9,
        init_cfg=dict(
            type='Pretrained', checkpoint=str(path), prefix='backbone.'
        ),
        **kwargs,
    )
    model.init_weights()
    return model


def test_extracted_backbones(convert, capsys):
    content, teacher, _ = checkpoint('mae')
    path = convert('extract_backbone', content)
    same(tokens(loaded(path), IMAGES), tokens(teacher, IMAGES))
    assert 'decoder_blocks.0.attn' in capsys.readouterr().out  # left out
    content, _, student = checkpoint('moca')
    path = convert('extract_backbone', content, '--which', 'student')
    same(tokens(loaded(path), IMAGES), tokens(student, IMAGES))
    for which in ('teacher', 'student'):  # the only one of the file
        assert read_backbone(path, which)[1:3] == ('moca', 'student')


@pytest.mark.parametrize('suffix', ['pth', 'safetensors'])
def test_records_of_what_was_made(convert, tmp_path, suffix):
    """Its source, and what a run says of its images and its heads."""
    content, _, _ = checkpoint('mmmoca')
    content['meta']['mmmoca']['preprocessing'] = dict(
        mean=[1.0, 2.0, 3.0], std=[4.0, 5.0, 6.0], resize=40, cropped=32
    )
    path = convert('extract_backbone', content, suffix=suffix)
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
    # What was made is a source itself.
    again = convert('extract_backbone', content)
    for name, value in read_checkpoint(again)['state_dict'].items():
        assert torch.equal(value, content['state_dict'][name])


@pytest.mark.parametrize(
    ('layout', 'trained', 'options'),
    [
        ('moca', (32, 32), ['--interpolation', 'bilinear']),
        # 36 patches could be a square, too.
        ('moca', (32, 72), ['--source-grid', 4, 9]),
        ('mmmoca', (32, 72), []),  # as its config has it
    ],
)
def test_resized_positions(convert, layout, trained, options):
    """The positions at another size, computed here."""
    content, teacher, _ = checkpoint(layout, trained)
    path = convert('extract_backbone', content, '--img-size', 48, 80, *options)
    grid = (trained[0] // 8, trained[1] // 8)
    patches = teacher.pos_embed[:, 1:].unflatten(1, grid).permute(0, 3, 1, 2)
    mode = 'bilinear' if 'bilinear' in options else 'bicubic'
    patches = torch.nn.functional.interpolate(patches, (6, 10), mode=mode)
    patches = patches.flatten(2).transpose(1, 2)
    expected = torch.cat((teacher.pos_embed[:, :1], patches), dim=1)
    content = read_checkpoint(path)
    assert content['meta']['mmmoca']['grid'] == (6, 10)
    same(content['state_dict']['backbone.pos_embed'], expected)
    same(loaded(path, img_size=(48, 80)).pos_embed, expected)


@pytest.mark.parametrize('channels', [1, 7])
def test_other_input_channels(convert, channels):
    content, teacher, _ = checkpoint('timm')
    path = convert('extract_backbone', content, '--in-channels', channels)
    same(
        loaded(path, in_channels=channels).patch_embed.projection.weight,
        adapt_input_conv(channels, teacher.patch_embed.proj.weight),
    )


def test_backbones_in_timm(convert):
    """What test_layouts reads loads in timm strictly."""
    content, teacher, _ = checkpoint('mmmoca')
    for suffix in ('pth', 'safetensors'):
        path = convert('timm_vit', content, '--to', 'timm', suffix=suffix)
        model = timm_vit(seed=9)
        timm_load_checkpoint(model, str(path), strict=True)
        same(tokens(model, IMAGES), tokens(teacher, IMAGES))
    # And back again.
    back = convert('timm_vit', read_checkpoint(path))
    same(tokens(loaded(back), IMAGES), tokens(teacher, IMAGES))


def test_an_encoder_of_bgr_images_is_not_one_of_timm(convert):
    content, *_ = checkpoint('mmmoca')
    images = dict(channel_order='bgr', mean=[1.0] * 3, std=[1.0] * 3)
    content['meta']['mmmoca']['preprocessing'] = images
    assert 'export.py' in convert('timm_vit', content, '--to', 'timm', code=2)


def released(case, **changes):
    """A golden case's weights as the authors' training saves them."""
    return dict(
        model=case.group('state_dict') | changes,
        optimizer=dict(state={}, param_groups=[dict(lr=0.1)]),
        epoch=199,
        scaler=dict(scale=65536.0, growth_factor=2.0),
        args=Namespace(model='moca_vit', lr=None, norm_pix_loss=False),
    )


@pytest.mark.parametrize('name', CASES)
def test_the_full_released_model(convert, capsys, name):
    """Every tensor of the model that test_golden compares with theirs."""
    case = Case(name)
    expected = build(case).state_dict()
    path = convert('moca_release', released(case), '--full')
    output = capsys.readouterr().out
    assert f'converted: {len(expected)}; left out: 11' in output
    model = build(case)
    model.init_weights()
    load_checkpoint(model, str(path), strict=True)
    mu = case['state_dict/bow_extractor.bow_extractor.0._dist_norm']
    assert float(model.codebook.msd) == float(mu)

    # As build() does: the case starts with the EMA update, and tells mu
    # from that of the step before.
    update_teacher(model.teacher, model.backbone, float(case['momentum']))
    model.codebook.msd.copy_(case['dist_norm_prev_before'][0])
    for key, value in model.state_dict().items():
        assert torch.equal(value, expected[key]), key


def test_pretraining_goes_on_from_the_release(convert, tmp_path):
    case = Case('two_rounds')
    path = convert('moca_release', released(case), '--full')
    config = case.meta['config']
    words = config['num_words']
    write_images(tmp_path / 'images', train=3, val=1)
    runner = demo_runner(
        tmp_path / 'images',
        'work',
        **{
            'model.backbone.arch': build(case).backbone.arch_settings,
            'model.codebook.num_words': words,
            'model.neck.embed_dims': config['decoder_embed_dim'],
            'model.neck.depth': config['decoder_depth'],
            'model.neck.num_heads': config['decoder_num_heads'],
            'train_cfg.max_iters': 1,
            'train_cfg.val_interval': 2,
            'optim_wrapper.optimizer.lr': 0.0,
            'default_hooks.teacher_ema.end_momentum': 1.0,
            'load_from': f'mmmoca-start://{tmp_path}/in.pth',
        },
    )
    runner.train()
    state = runner.model.state_dict()
    before = read_checkpoint(path)['state_dict']
    # At a rate of 0 nothing moves; the codebook gets its four new words.
    for name in before:
        if name.startswith(('backbone.', 'teacher.', 'neck.')):
            same(state[name], before[name])
    rows = (int(before['codebook.pointer']) + torch.arange(4)) % words
    changed = (state['codebook.words'] != before['codebook.words']).any(1)
    assert changed.nonzero().flatten().tolist() == sorted(rows.tolist())


def test_a_release_of_other_shapes(convert, tmp_path):
    name = 'decoder_blocks_full.0.norm1.weight'
    content = released(Case('two_rounds'), **{name: torch.ones(3)})
    assert name in convert('moca_release', content, '--full', code=2)
    assert [path.name for path in tmp_path.iterdir()] == ['in.pth']
