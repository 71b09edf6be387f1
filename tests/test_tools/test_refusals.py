# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Wrong command lines end with one helpful line, and leave nothing."""

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
    """Return the folder in which the tools run; its files are not changed."""
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
    'tool, line, named',
    [
        ('train', 'moca_vit-b16_200.py', 'moca_vit-b16_200e'),
        ('train', f'{CONFIG} --init empty', 'empty'),
        ('train', f'{CONFIG} --init a.pth --resume b.pth', 'a.pth'),
        ('train', f'{CONFIG} --cfg-options a', 'KEY=VALUE'),
        ('train', f'{CONFIG} --cfg-options model.a=[1,2', '--cfg-options'),
        ('train', 'classification/knn_vit-b16_in1k.py', 'train_cfg'),
        ('train', CONFIG, 'data/imagenet/'),
        ('train', 'wrong.py', "'c'"),
        ('train', f'{OWN}=1 model.codebook.a=3', 'OnlineCodebook'),
        ('train', f'{OWN}=2 optim_wrapper.optimizer.type=A', ' A'),
        ('train', f'{OWN}=3 {PART}.type=A', 'A'),
        ('train', f'{OWN}=4 load_from=timm.pth', 'timm.pth'),
        ('test', f'{CONFIG} mmmoca-student://b.pth', 'b.pth'),
        ('test', f'{CONFIG} a.pth --out-item metrics', '--out'),
        ('test', f'{CONFIG} a.pth --out a.json', '.pkl'),
        ('test', 'untested.py a.pth', 'test_cfg'),
        ('demo', '--data empty --out new', 'empty'),
        (f'{ANALYSIS}/plot_curves', 'none', 'none'),
        (f'{ANALYSIS}/plot_curves', 'log.json', 'log.json'),
        (f'{DATA_SETS}/band_statistics', 'empty', 'empty'),
        (f'{ANALYSIS}/compare', f'a.pth {DATA} --sets 0', '--sets'),
        (f'{ANALYSIS}/compare', f'a.pth {DATA} --percent nan', '--percent'),
        (f'{ANALYSIS}/compare', f'a.pth {DATA} --seed -1', '--seed'),
        (f'{ANALYSIS}/compare', f'a.pth {DATA} --shots --percent', '--shots'),
        (f'{ANALYSIS}/compare', f'a.pth a.pth {DATA}', "'a'"),
        (f'{ANALYSIS}/compare', 'a.pth --protocols knn', '--data-root'),
        (f'{ANALYSIS}/compare', 'a.pth --protocols incontext', '--masks'),
        ('export', 'timm.pth out --to timm', '--num-heads'),
        ('export', 'timm.pth out --to timm --license a:b', 'a:b'),
        (CONVERT, 'timm.pth same.pth', 'DST'),
        (CONVERT, 'timm.pth out.onnx', '.safetensors'),
        (CONVERT, 'timm.pth out.pth --img-size 30 32', '--img-size'),
        (CONVERT, 'timm.pth out.pth --source-grid 4 5', '--source-grid'),
        (CONVERT, 'flat.pth out.pth --img-size 32 32', '--source-grid'),
        (CONVERT, 'timm.pth out.pth --to moca', 'encoder_teacher'),
        (f'{DATA_SETS}/cityscapes_splits', 'images', 'leftImg'),
        (f'{DATA_SETS}/make_shards', 'images empty', 'empty'),
        (f'{DATA_SETS}/make_subset', 'images out --shots 99', '99'),
        (f'{DATA_SETS}/make_subset', 'images out --seed -1', 'negative'),
        (f'{DRAWN}/make_digits', 'images', 'images'),
        (f'{DRAWN}/make_digits', 'out --size 7', '8'),
        (f'{DRAWN}/make_shapes_coco', 'out --size 63', 'size'),
    ],
)
def test_refused(place, monkeypatch, tool, line, named):
    monkeypatch.chdir(place)
    before = contents(place)
    printed = run_tool(f'tools/{tool}.py', *line.split(), code=2)
    error = printed.splitlines()[-1]
    assert OWN not in line or printed.count('\n') < 9
    assert 'error: ' in error and named in error
    assert contents(place) == before
