# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Wrong command lines end in one line that helps, and leave nothing."""

import re

import pytest
import torch

from ..helpers.checkpoint_files import checkpoint
from ..helpers.tools import contents, run_tool

CONFIG = 'moca_vit-b16_200e.py'
ANALYSIS, DATA_SETS = 'analysis_tools', 'dataset_converters'
DRAWN = 'drawn_sets'
CONVERT = 'model_converters/convert'
DATA = '--data-root images'
TINY = 'demo/moca_vit-tiny_own-images'
OWN = f'{TINY} --cfg-options data_root=images batch_size=8 experiment_name'
PART = 'train_dataloader.dataset.pipeline.0'


@pytest.fixture(scope='module')
def place(root, tmp_path_factory):
    """The folder in which the tools run; its files stay as they are."""
    place = tmp_path_factory.mktemp('place')
    (place / 'a.pth').touch()
    torch.save(checkpoint('timm')[0], place / 'timm.pth')
    torch.save(checkpoint('timm', (16, 72))[0], place / 'flat.pth')
    (place / 'same.pth').hardlink_to(place / 'timm.pth')
    (place / 'empty').mkdir()
    (place / 'images').symlink_to(root / 'train')
    (place / 'untested.py').write_text('model = dict()\n')
    (place / 'log.json').write_text('[]')
    (place / 'wrong.py').write_text('a = c')
    return place


@pytest.mark.parametrize(
    'tool, line, message',
    [
        ('train', 'moca_vit-b16_200.py', 'no config .*moca_vit-b16_200e'),
        ('train', f'{CONFIG} --init empty', 'no file empty'),
        ('train', f'{CONFIG} --init a.pth --resume b.pth', 'a.pth, or b.pth'),
        ('train', f'{CONFIG} --cfg-options a', 'a must be KEY=VALUE'),
        ('train', f'{CONFIG} --cfg-options model.a=[1,2', '--cfg-options'),
        ('train', 'classification/knn_vit-b16_in1k.py', 'no train_cfg'),
        ('train', CONFIG, 'no folder data/imagenet/'),
        ('train', 'wrong.py', "'c' is not defined"),
        ('train', f'{OWN}=1 model.codebook.a=3', "OnlineCodebook.*'a'"),
        ('train', f'{OWN}=2 optim_wrapper.optimizer.type=A', 'no optimiser A'),
        ('train', f'{OWN}=3 {PART}.type=A', 'A is not in .*transform'),
        ('train', f'{OWN}=4 load_from=timm.pth', r'timm\.pth: .*names of the'),
        ('test', f'{CONFIG} mmmoca-student://b.pth', 'no checkpoint b.pth'),
        ('test', f'{CONFIG} a.pth --out-item metrics', 'needs --out'),
        ('test', f'{CONFIG} a.pth --out a.json', r'must end in \.pkl'),
        ('test', 'untested.py a.pth', 'untested.py has no test_cfg'),
        ('demo', '--data empty --out new', 'no image in'),
        (f'{ANALYSIS}/plot_curves', 'none', 'there is no none'),
        (f'{ANALYSIS}/plot_curves', 'log.json', 'no file of scalars'),
        (f'{DATA_SETS}/band_statistics', 'empty', r'no image in .*\.npy'),
        (f'{ANALYSIS}/compare', f'a.pth {DATA} --sets 0', '--sets'),
        (f'{ANALYSIS}/compare', f'a.pth {DATA} --percent nan', '--percent'),
        (f'{ANALYSIS}/compare', f'a.pth {DATA} --seed -1', '--seed'),
        (f'{ANALYSIS}/compare', f'a.pth {DATA} --shots --percent', '--shots'),
        (f'{ANALYSIS}/compare', f'a.pth a.pth {DATA}', 'repeat'),
        (f'{ANALYSIS}/compare', 'a.pth --protocols knn', '--data-root'),
        (f'{ANALYSIS}/compare', 'a.pth --protocols incontext', '--masks'),
        ('export', 'timm.pth out --to timm', '--num-heads'),
        ('export', 'timm.pth out --to timm --license a:b', 'identifier'),
        (CONVERT, 'timm.pth same.pth', 'DST is SRC'),
        (CONVERT, 'timm.pth out.onnx', r'\.safetensors'),
        (CONVERT, 'timm.pth out.pth --img-size 30 32', '--img-size'),
        (CONVERT, 'timm.pth out.pth --source-grid 4 5', '--source-grid'),
        (CONVERT, 'flat.pth out.pth --img-size 32 32', '--source-grid'),
        (CONVERT, 'timm.pth out.pth --to moca', 'encoder_teacher'),
        (f'{DATA_SETS}/cityscapes_splits', 'images', 'that has leftImg'),
        (f'{DATA_SETS}/make_shards', 'images empty', 'empty exists'),
        (f'{DATA_SETS}/make_subset', 'images out --shots 99', 'fewer than 99'),
        (f'{DATA_SETS}/make_subset', 'images out --seed -1', 'non-negative'),
        (f'{DRAWN}/make_digits', 'images', 'images exists'),
        (f'{DRAWN}/make_digits', 'out --size 7', 'at least 8'),
        (f'{DRAWN}/make_shapes_coco', 'out --size 63', 'size must be'),
    ],
)
def test_refused(place, monkeypatch, tool, line, message):
    monkeypatch.chdir(place)
    before = contents(place)
    printed = run_tool(f'tools/{tool}.py', *line.split(), code=2)
    error = printed.splitlines()[-1]
    assert OWN not in line or printed.count('\n') < 9
    assert 'error: ' in error and re.search(message, error)
    assert contents(place) == before
