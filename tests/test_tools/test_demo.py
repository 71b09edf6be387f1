# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The quick start, on sets that are much too small to learn from."""

import json
from collections import Counter
from unittest import mock

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config

import mmmoca
from mmmoca.checkpoints import read_checkpoint

from ..helpers.images import write_images
from ..helpers.judges import knn_judge
from ..helpers.tools import run_tool

TRAIN, VAL = 130, 36
TRAINED = 'teacher', 'student'


@pytest.fixture(scope='module')
def demo(tmp_path_factory):
    """Folder of a run on its own textures, and what it printed."""
    out = tmp_path_factory.mktemp('demo') / 'out'
    run_tool(
        *('tools/drawn_sets/make_textures.py', out / 'textures'),
        *('--train', TRAIN, '--val', VAL),
    )
    meta = dict(experiment_name='moca_vit-tiny_textures_demo_20260101_000000')
    torch.save(dict(meta=meta), out / 'iter_9.pth')
    options = ['--out', out, '--iters', 2, '--seed', 3]
    return out, run_tool('tools/demo.py', *options)


@pytest.mark.slow
def test_accuracies_pictures_and_output(demo):
    out, printed = demo
    result = json.loads((out / 'result.json').read_text())
    assert (result['seed'], result['iters']) == (3, 2)
    assert not (out / 'iter_9.pth').exists()
    features, labels = {}, {}
    for split in ('train', 'val'):
        files = sorted((out / 'textures' / split).glob('*/*.jpg'))
        labels[split] = [file.parent.name for file in files]
        pixels = np.stack([cv2.imread(str(file)) for file in files])
        pixels = pixels.reshape(len(files), -1).astype(float)
        pixels -= pixels.mean(axis=1, keepdims=True)
        features['raw pixels', split] = pixels
        for which in TRAINED:
            encoder = mmmoca.load(out / 'iter_2.pth', which, 'cpu')
            found = encoder.embed(out / 'textures' / split, num_workers=0)
            features[which, split] = found.avg.numpy()
    for kind in ('raw pixels', *TRAINED):
        judge = knn_judge(features[kind, 'train'], labels['train'], 20)
        expected = 100 * judge.score(features[kind, 'val'], labels['val'])
        # A tie may go either way.
        assert result['knn'][kind] == pytest.approx(
            expected, abs=100 / VAL + 1e-6
        )
    scalars = next(out.glob('*/vis_data/scalars.json')).read_text()
    last = json.loads(scalars.splitlines()[-1])
    assert last['step'] == 2
    assert last['knn/top1_k20'] == pytest.approx(result['knn']['teacher'])
    for name in ('moca.png', 'curves.png'):
        picture = cv2.imread(str(out / name))
        assert min(picture.shape[:2]) > 500 and picture.std() > 20
        assert str(out / name) in printed
    lines = printed.splitlines()
    assert lines[0] == '1/4 images'
    assert any(line.startswith('  step 2/2  loss') for line in lines)
    assert 'Config:' not in printed and 'INFO' not in printed
    # The log is kept in its file, and nothing else is left behind.
    assert 'Config:' in next(out.glob('*/*.log')).read_text()
    assert not list(out.glob('.images-*'))


@pytest.mark.slow
def test_pictures_of_any_run(demo, tmp_path):
    out, _ = demo
    overview = 'tools/visualization/overview.py'
    model = out / 'moca_vit-tiny_textures.py', out / 'iter_2.pth'
    for picture, command in {
        # Beside the checkpoint.
        out / 'iter_2.png': [overview, *model, '--data']
        + [out / 'textures' / 'val', '--images', 2, '--bank', 30]
        + ['--num-workers', 0],
        out / 'curves.png': ['tools/analysis_tools/plot_curves.py', out]
        + ['--baseline', 'pixels', 20],
    }.items():
        printed = run_tool(*command)
        assert printed.endswith(f'{picture}\n')
        assert 'init_weights' not in printed
        assert cv2.imread(str(picture)).std() > 20
        picture.unlink()
    state = read_checkpoint(model[1])['state_dict']
    del state['codebook.words']
    torch.save(state, tmp_path / 'part.pth')
    printed = run_tool(overview, model[0], tmp_path / 'part.pth', code=2)
    assert 'codebook.words' in printed


@pytest.mark.slow
def test_own_images(tool, tmp_path, capfd):
    write_images(tmp_path, train=101, classes=1)
    images, out = tmp_path / 'train' / 'my images', tmp_path / 'out'
    (tmp_path / 'train' / 'class_0').rename(images)
    (images / 'broken.jpg').write_bytes(b'\xff\xd8\xff broken')
    tool('demo').main(
        ['--data', str(images), '--out', str(out), '--iters', '2']
    )
    assert json.loads((out / 'result.json').read_text())['knn'] == {}
    printed = capfd.readouterr().out
    assert '101 images of 102' in printed
    assert '1 left out' in printed and 'broken.jpg' in printed
    assert 'k-NN,' not in printed
    assert not list(out.glob('.images-*'))
    cfg = Config.fromfile(out / 'moca_vit-tiny_textures.py')
    assert cfg.model.codebook.centre == 0.9
    assert cfg.optim_wrapper.optimizer.lr == 1e-3


def test_images_are_shrunk(tool, tmp_path, monkeypatch):
    """A draw of them by the seed, in one folder, as there is one class."""
    demo = tool('demo')
    monkeypatch.setattr(demo, 'MAX_IMAGES', 101)
    rng = np.random.default_rng(0)
    source = tmp_path / 'images'
    source.mkdir()
    for index in range(110):
        size = [(300, 208), (104, 500), (20, 30)][index % 3]
        image = np.full((*size, 3), rng.integers(256, size=3), np.uint8)
        cv2.imwrite(str(source / f'{index:03d}.png'), image)
    drawn = []
    for turn, seed in enumerate((0, 0, 1)):
        folder = tmp_path / f'copies{turn}'
        folder.mkdir()
        assert demo.shrink_images(str(source), folder, seed) == folder
        drawn.append([cv2.imread(str(f)) for f in sorted(folder.iterdir())])
    sizes = {copy.shape[:2] for copy in drawn[0]}
    assert sizes == {(150, 104), (104, 500), (20, 30)}
    assert all((c == c[0, 0]).all() for c in drawn[0])
    one, two, three = ([tuple(c[0, 0]) for c in copies] for copies in drawn)
    assert one == two != three and len(set(one)) == 101


def test_folders_are_classes_if_large_enough(tool, tmp_path, monkeypatch):
    """Those of a set that is split, too, which is split anew."""
    write_images(tmp_path / 'images', train=54, val=6, classes=2)
    demo, source = tool('demo'), str(tmp_path / 'images')
    _, args = demo.parse_args(['--data', source])
    counts = {}
    for least in (60, 61):
        monkeypatch.setattr(demo, 'MIN_CLASS', least)
        folder = demo.shrink_images(source, tmp_path / f'{least}', 0)
        counts[least] = Counter(
            path.parent.relative_to(folder).as_posix()
            for path in folder.rglob('*.png')
        )
        validates = demo.demo_config(folder, args).val_cfg is not None
        assert validates == (least == 60)
    split = dict(train=50, val=10)
    assert counts[60] == {
        f'{name}/class_{i}': split[name] for name in split for i in (0, 1)
    }
    assert counts[61] == {'.': 120}


def test_checkpoints_of_other_runs_are_kept(tool, tmp_path, capsys):
    path = tmp_path / 'iter_9.pth'
    meta = dict(experiment_name='moca_vit-tiny_textures_20260101_000000')
    torch.save(dict(meta=meta), path)
    arguments = ['--data', str(tmp_path), '--out', str(tmp_path)]
    with pytest.raises(SystemExit):
        tool('demo').main(arguments)
    assert f'{path} is the checkpoint of another' in capsys.readouterr().err
    assert path.exists()


def test_where_it_writes_and_draws_by_default(tool, tmp_path):
    demo = tool('demo')
    own = demo.parse_args(['--data', f'{tmp_path}/'])[1]
    assert str(own.out) == f'work_dirs/demo_{tmp_path.name}'
    assert str(demo.parse_args([])[1].out) == 'work_dirs/demo'
    with mock.patch.object(demo.subprocess, 'run') as run:
        folder = demo.draw_textures(tmp_path)
    _, program, target = run.call_args.args[0]
    assert program.name == 'make_textures.py'
    assert target == folder == tmp_path / 'textures'
