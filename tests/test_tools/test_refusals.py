# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Wrong command lines end in one line that helps, and leave nothing."""

import re

import pytest
import torch

from ..images import DEMO_CONFIG
from ..test_checkpoints.files import checkpoint
from ..tools import contents, run_tool

CONFIG = 'moca_vit-b16_200e.py'
DRAWN = 'dataset_converters'


@pytest.fixture
def place(root, tmp_path, monkeypatch):
    """The folder in which the tools run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'a.pth').touch()
    torch.save(checkpoint('timm')[0], tmp_path / 'timm.pth')
    torch.save(checkpoint('timm', (16, 72))[0], tmp_path / 'flat.pth')
    (tmp_path / 'same.pth').hardlink_to(tmp_path / 'timm.pth')
    (tmp_path / 'empty').mkdir()
    (tmp_path / 'images').symlink_to(root / 'train')
    (tmp_path / 'untested.py').write_text('model = dict()\n')
    (tmp_path / 'log.json').write_text('[]')
    return tmp_path


@pytest.mark.parametrize(
    'tool, line, message',
    [
        ('train', 'moca_vit-b16_200.py', 'no config .*moca_vit-b16_200e'),
        ('train', f'{CONFIG} --resume b.pth', 'no checkpoint b.pth'),
        ('train', f'{CONFIG} --init empty', 'no file empty'),
        ('train', f'{CONFIG} --cfg-options a', 'a must be KEY=VALUE'),
        ('train', f'{CONFIG} --cfg-options a=[1,2', '--cfg-options'),
        ('train', 'classification/knn_vit-b16_in1k.py', 'no train_cfg'),
        ('train', CONFIG, 'no folder data/imagenet/'),
        ('test', f'{CONFIG} mmmoca-student://b.pth', 'no checkpoint b.pth'),
        ('test', f'{CONFIG} a.pth --out-item metrics', 'needs --out'),
        ('test', f'{CONFIG} a.pth --out a.json', r'must end in \.pkl'),
        ('test', 'untested.py a.pth', 'untested.py has no test_cfg'),
        ('demo', '--iters 1', '--iters must be at least 2'),
        ('demo', '--data none', 'there is no folder'),
        ('demo', '--data empty --out out', 'no image in'),
        ('demo', '--data images --out out', 'at least 100'),
        ('analysis_tools/plot_curves', 'empty', 'no run'),
        ('analysis_tools/plot_curves', 'log.json', 'no file of scalars'),
        ('analysis_tools/band_statistics', 'empty', r'no image in .*\.npy'),
        ('analysis_tools/band_statistics', str(DEMO_CONFIG), 'no folder'),
        ('analysis_tools/band_statistics', 'empty --images 0', '--images: 0'),
        *(
            ('analysis_tools/compare', f'{line} --data-root images', message)
            for line, message in (
                ('a.pth --epochs 0', '--epochs'),
                ('a.pth --sets 1.5', '--sets'),
                ('a.pth --shots --percent', '--shots'),
                ('a.pth a.pth', 'repeat'),
            )
        ),
        *(
            ('export', f'timm.pth out --to timm {options}', message)
            for options, message in (
                ('', '--num-heads'),
                ('--num-heads 3 --source-grid 4 5', '--source-grid'),
                ('--num-heads 3 --img-size 30 32', '--img-size'),
                ('--license a:b', 'identifier'),
            )
        ),
        *(
            ('model_converters/extract_backbone', line, message)
            for line, message in (
                ('timm.pth same.pth', 'DST is SRC'),
                ('timm.pth out.onnx', r'\.safetensors'),
                ('timm.pth out.pth --img-size 30 32', '--img-size'),
                ('timm.pth out.pth --in-channels 0', '--in-channels'),
                ('timm.pth out.pth --source-grid 4 5', '--source-grid'),
                ('flat.pth out.pth --img-size 32 32', '--source-grid'),
            )
        ),
        *(
            ('model_converters/moca_release', f'timm.pth out.pth {full}', word)
            for full, word in (
                ('', 'extract_backbone.py'),
                ('--full', 'encoder_teacher'),
            )
        ),
        (f'{DRAWN}/make_shards', 'images out --number 0', '--number: 0'),
        (f'{DRAWN}/make_shards', 'images empty', 'empty exists'),
        (f'{DRAWN}/make_subset', 'none out', 'no folder none'),
        (f'{DRAWN}/make_subset', 'images out --shots 99', 'fewer than 99'),
        (f'{DRAWN}/make_subset', 'images out --sets 0', '--sets: 0'),
        (f'{DRAWN}/make_subset', 'images out --percent 1 101', 'at most 100'),
        (f'{DRAWN}/make_subset', 'images out --seed -1', 'non-negative'),
        (f'{DRAWN}/make_digits', 'images', 'images exists'),
        (f'{DRAWN}/make_digits', 'out --size 7', 'at least 8'),
        (f'{DRAWN}/make_textures', 'out --train 11', 'train must be'),
        (f'{DRAWN}/make_textures', 'out --size 23', 'size must be'),
        (f'{DRAWN}/make_shapes_coco', 'out --val 0', 'val must be'),
        (f'{DRAWN}/make_shapes_coco', 'out --size 63', 'size must be'),
        (f'{DRAWN}/make_shapes_coco', 'out --seed -1', 'seed must be'),
    ],
)
def test_refused(place, tool, line, message):
    before = contents(place)
    printed = run_tool(f'tools/{tool}.py', *line.split(), code=2)
    error = printed.splitlines()[-1]
    assert 'error: ' in error and re.search(message, error)
    assert contents(place) == before
