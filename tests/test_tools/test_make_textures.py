# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Tests of the tool that draws the texture image set."""

import json
import sys
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

TOOLS = Path(__file__).parents[2] / 'tools' / 'dataset_converters'
COUNTS = {'train': 125, 'val': 30}


@pytest.fixture
def tool(monkeypatch):
    # On the path rather than loaded from the file: the spawned workers must
    # be able to import it too.
    monkeypatch.syspath_prepend(str(TOOLS))
    import make_textures

    yield make_textures
    sys.modules.pop('make_textures')


def _files(root):
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob('*')
        if path.is_file()
    }


def test_same_bytes_for_any_number_of_workers(tool, tmp_path):
    for workers in (1, 2):
        assert tool.make_textures(
            tmp_path / str(workers), **COUNTS, workers=workers
        )
    one, two = _files(tmp_path / '1'), _files(tmp_path / '2')
    assert len(one) == 125 + 30 + 1
    assert one == two
    # Nothing temporary is left behind.
    assert sorted(p.name for p in tmp_path.iterdir()) == ['1', '2']


def test_layout_balance_and_format(tool, tmp_path):
    out = tmp_path / 'deep' / 'set'
    tool.make_textures(str(out), **COUNTS, size=32, seed=3, workers=1)
    assert list(tool.CLASSES) == sorted(tool.CLASSES)
    assert len(tool.CLASSES) == 12
    for split, count in COUNTS.items():
        number = Counter(p.parent.name for p in out.glob(f'{split}/*/*'))
        assert set(number) == set(tool.CLASSES)
        assert sum(number.values()) == count
        assert max(number.values()) - min(number.values()) == 1
    assert sorted(p.name for p in (out / 'train' / 'rings').iterdir()) == [
        f'{i:05d}.jpg' for i in range(10)
    ]
    for path in (out / 'val').glob('*/*.jpg'):
        assert path.read_bytes()[:3] == b'\xff\xd8\xff'
        image = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        assert image.shape == (32, 32, 3)
        assert np.ptp(image, axis=2).max() == 0
        assert image.min() < 30 and image.max() > 225
    assert json.loads((out / 'meta.json').read_text()) == {
        'format': tool.FORMAT,
        **COUNTS,
        'size': 32,
        'seed': 3,
        'classes': list(tool.CLASSES),
    }


def test_file_holds_its_own_drawing(tool, tmp_path):
    tool.make_textures(tmp_path / 'set', **COUNTS, seed=5, workers=1)
    for split, split_number in (('train', 0), ('val', 1)):
        index = 1 * 12 + tool.CLASSES.index('dots')
        expected = tool.draw(
            index % 12, np.random.default_rng((5, split_number, index)), 48
        )
        path = tmp_path / 'set' / split / 'dots' / '00001.jpg'
        image = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
        # JPEG is lossy, at quality 95 by a few grey levels.
        error = np.abs(image.astype(float) - expected)
        assert error.mean() < 4 and error.max() < 32


def test_all_images_differ(tool, tmp_path):
    images = []
    for seed in (0, 1):
        out = tmp_path / str(seed)
        tool.make_textures(out, **COUNTS, seed=seed, workers=1)
        files = _files(out)
        assert len(files.pop('meta.json')) > 0
        images += files.values()
    assert len(set(images)) == len(images) == 2 * (125 + 30)


@pytest.mark.parametrize('size', [24, 48, 97])
def test_draw(tool, size):
    for label in range(12):
        first, again, other = (
            tool.draw(label, np.random.default_rng(seed), size)
            for seed in (7, 7, 8)
        )
        assert first.shape == (size, size) and first.dtype == np.uint8
        assert first.min() == 0 and first.max() == 255
        assert (first == again).all() and (first != other).any()


def test_stripes_have_the_declared_period(tool):
    field, period = tool._TEXTURES['stripes']
    u = np.arange(480) / period
    ink = field(u, u, 1.0, np.random.default_rng(0)) > 0
    spectrum = np.abs(np.fft.rfft(ink - ink.mean()))
    assert 480 / spectrum.argmax() == pytest.approx(period, rel=0.02)


def _spectral_shape(image):
    """Angular harmonics of the spectrum: blind to place and rotation."""
    window = np.outer(np.hanning(48), np.hanning(48))
    power = np.abs(np.fft.fft2((image - image.mean()) * window))
    polar = cv2.warpPolar(
        np.log1p(np.fft.fftshift(power)),
        (24, 64),
        (24, 24),
        24,
        cv2.WARP_POLAR_LINEAR,
    )
    return np.abs(np.fft.rfft(polar, axis=0))[:14:2].ravel()


def test_texture_tells_the_class_and_pixels_do_not(tool):
    labels = np.arange(1800) % 12
    images = np.stack(
        [
            tool.draw(label, np.random.default_rng((0, 0, index)), 48)
            for index, label in enumerate(labels)
        ]
    )

    def accuracy(features):
        knn = KNeighborsClassifier(20, metric='cosine', algorithm='brute')
        knn.fit(features[:1440], labels[:1440])
        return knn.score(features[1440:], labels[1440:])

    pixels = images.reshape(1800, -1).astype(float)
    pixels -= pixels.mean(1, keepdims=True)
    shapes = np.stack([_spectral_shape(image) for image in images])
    shapes = (shapes - shapes.mean(0)) / (shapes.std(0) + 1e-6)
    # Chance is 1 / 12; in the whole set pixels give about .19.
    assert accuracy(pixels) < 0.25
    assert accuracy(shapes) > 0.8


def test_polygon_covers_what_it_says(tool):
    rng = np.random.default_rng(0)
    masks = np.stack([tool._polygon(rng, 48) for _ in range(200)])
    area = masks.mean((1, 2))
    assert masks.min() == 0 and masks.max() == 1
    assert 0.35 <= area.min() < 0.4 and 0.7 < area.max() <= 0.75


def test_run_again_does_nothing(tool, tmp_path, capsys):
    out = tmp_path / 'set'
    assert tool.make_textures(out, **COUNTS, workers=1)
    capsys.readouterr()
    times = {p: p.stat().st_mtime_ns for p in out.rglob('*')}
    assert not tool.make_textures(out, **COUNTS, workers=2)
    assert 'nothing to do' in capsys.readouterr().out
    assert times == {p: p.stat().st_mtime_ns for p in out.rglob('*')}


def test_other_content_is_refused_and_kept(tool, tmp_path):
    out = tmp_path / 'set'
    tool.make_textures(out, **COUNTS, workers=1)
    before = _files(out)
    with pytest.raises(FileExistsError, match='something else'):
        tool.make_textures(out, **COUNTS, seed=1, workers=1)
    assert _files(out) == before

    (out / 'train' / 'dots' / '00000.jpg').unlink()
    with pytest.raises(FileExistsError, match='something else'):
        tool.make_textures(out, **COUNTS, workers=1)

    file = tmp_path / 'file'
    file.write_text('mine')
    with pytest.raises(FileExistsError, match='something else'):
        tool.make_textures(file, **COUNTS, workers=1)
    assert file.read_text() == 'mine'


def test_an_empty_folder_is_filled(tool, tmp_path):
    out = tmp_path / 'set'
    out.mkdir()
    assert tool.make_textures(out, **COUNTS, workers=1)
    assert len(_files(out)) == 156


def test_failure_leaves_nothing(tool, tmp_path, monkeypatch):

    def fail(*args):
        raise RuntimeError('disk full')

    monkeypatch.setattr(tool, 'draw', fail)
    with pytest.raises(RuntimeError, match='disk full'):
        tool.make_textures(tmp_path / 'set', **COUNTS, workers=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    'name, value',
    [('train', 11), ('val', 0), ('size', 23), ('seed', -1), ('workers', 0)],
)
def test_bad_arguments(tool, tmp_path, name, value):
    arguments = {**COUNTS, name: value}
    with pytest.raises(ValueError, match=f'{name} must be .* got {value}'):
        tool.make_textures(tmp_path / 'set', **arguments)
    assert list(tmp_path.iterdir()) == []


def test_command_line(tool, tmp_path, monkeypatch):
    out = tmp_path / 'set'
    monkeypatch.setattr(
        sys,
        'argv',
        f'make_textures {out} --train 24 --val 12 --size 24 --seed 2 '
        '--workers 1'.split(),
    )
    tool.main()
    assert json.loads((out / 'meta.json').read_text())['seed'] == 2
    assert len(list(out.glob('train/*/*.jpg'))) == 24
