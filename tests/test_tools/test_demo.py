# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The demo, on sets that are much too small to learn from."""

import re

import cv2
import pytest
import torch

import mmmoca
from mmmoca.apis.comparison import evaluate
from mmmoca.checkpoints import read_checkpoint

from ..helpers.images import write_images
from ..helpers.tools import run_tool

TRAIN, VAL = 130, 36
TRAINED = 'teacher', 'student'


@pytest.fixture(scope='module')
def demo(tmp_path_factory):
    """Run the demo on its own textures; return its folder and its output."""
    out = tmp_path_factory.mktemp('demo') / 'out'
    draw = 'tools/drawn_sets/make_textures.py', out / 'textures'
    run_tool(*draw, '--train', TRAIN, '--val', VAL)
    options = ['--out', out, '--iters', 2, '--seed', 3]
    return out, run_tool('tools/demo.py', *options)


@pytest.mark.slow
def test_accuracies_pictures_and_output(demo, tmp_path):
    out, printed = demo
    found = re.findall(r'^k-NN, (.*?) +([\d.]+) %$', printed, re.M)
    accuracies = {name: float(value) for name, value in found}
    # The run measures them; only the names are tested here.
    assert accuracies.keys() == {'raw pixels', 'untrained', *TRAINED}
    for which in TRAINED:
        encoder = mmmoca.load(out / 'iter_2.pth', which, 'cpu')
        preset = encoder.preset._replace(temperature=0.07)
        place = out / 'textures', tmp_path / which, preset
        expected = evaluate(encoder, *place, ['knn'])['knn']['k=20']
        # A tie may go either way.
        found = accuracies[which]
        assert found == pytest.approx(expected, abs=100 / VAL + 0.1)
    for name in ('moca.png', 'curves.png'):
        picture = cv2.imread(str(out / name))
        assert min(picture.shape[:2]) > 500 and picture.std() > 20
        assert str(out / name) in printed
    lines = printed.splitlines()
    assert lines[0] == '1/4 images'
    assert any(line.startswith('  step 2/2  loss') for line in lines)
    assert 'Config:' not in printed and 'INFO' not in printed
    assert 'Config:' in next(out.glob('*/*.log')).read_text()


@pytest.mark.slow
def test_repeated(demo):
    """Nothing is trained again, and the figures are the same."""
    out, printed = demo
    made = (out / 'iter_2.pth').stat().st_mtime_ns
    again = run_tool('tools/demo.py', '--out', out, '--iters', 2, '--seed', 3)
    assert (out / 'iter_2.pth').stat().st_mtime_ns == made
    assert again.splitlines()[-7:] == printed.splitlines()[-7:]


@pytest.mark.slow
def test_pictures_of_any_run(demo, tmp_path):
    out, _ = demo
    overview = 'tools/visualization/overview.py'
    model = out / 'moca_vit-tiny_textures.py', out / 'iter_2.pth'
    for picture, command in {
        # next to the checkpoint
        out / 'iter_2_val.png': [overview, *model, '--data']
        + [out / 'textures' / 'val', '--images', 2, '--bank', 30]
        + ['--num-workers', 0],
        out / 'curves.png': ['tools/analysis_tools/plot_curves.py', out],
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


@pytest.fixture
def images(tmp_path):
    """Write 48 training images of two classes, and some validation images."""
    write_images(tmp_path / 'images', train=24, val=6, classes=2)
    return tmp_path / 'images'


@pytest.fixture
def forty(tool, monkeypatch):
    """Let the demo use at most forty images."""
    demo = tool('demo')
    monkeypatch.setattr(demo, 'MAX_IMAGES', 40)
    return demo


@pytest.mark.slow
def test_own_images(forty, images, tmp_path, capfd):
    """The demo uses some of the images, without labels; one is unreadable."""
    folder, out = images / 'train', tmp_path / 'out'
    broken = folder / 'class_0' / 'broken.jpg'
    broken.write_bytes(b'\xff\xd8\xff broken')
    forty.main(['--data', f'{folder}', '--out', f'{out}', '--iters', '2'])
    printed = capfd.readouterr().out
    assert '40 images of 49 in' in printed and 'k-NN' not in printed
    assert cv2.imread(str(out / 'moca.png')).std() > 20
    assert (out / 'moca_vit-tiny_own-images.py').is_file()


def test_own_images_with_labels(forty, images, capsys):
    args = forty.build_parser().parse_args(['--data', f'{images}'])
    settings = forty.own_run(args)
    assert settings['knn'] == args.data and len({*settings['data']}) == 40
    assert '40 images of 48 in' in capsys.readouterr().out


def test_where_it_writes_by_default(tool, tmp_path):
    demo = tool('demo')
    own = demo.default_folder(f'{tmp_path}/')
    assert str(own) == f'work_dirs/demo_{tmp_path.name}'
    assert str(demo.default_folder(None)) == 'work_dirs/demo'
