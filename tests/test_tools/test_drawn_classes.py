# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The tools that draw class folders of grey images."""

import json
import math
import re
import sys
from collections import Counter

import cv2
import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from ..tools import contents, load_tool

COUNTS = {'train': 125, 'val': 30}


@pytest.fixture(scope='module', params=['shapes', 'textures'])
def tool(request):
    place = {
        'shapes': '../projects/rivals/make_shapes',
        'textures': 'dataset_converters/make_textures',
    }[request.param]
    return load_tool(place)


@pytest.fixture
def make(tool):
    return getattr(tool, tool.__name__.removeprefix('tool_'))


def test_the_same_arguments_give_the_same_bytes(make, tmp_path):
    for name in '12':
        assert make(tmp_path / name, **COUNTS)
    one, two = contents(tmp_path / '1'), contents(tmp_path / '2')
    assert one == two
    # Not one image is drawn twice.
    assert len(one) == len(set(one.values())) == 125 + 30 + 1


def test_what_is_written(tool, make, tmp_path):
    out = tmp_path / 'deep' / 'set'
    make(str(out), **COUNTS, size=32, seed=3)
    assert list(tool.CLASSES) == sorted(tool.CLASSES)
    assert len(tool.CLASSES) == 12
    for split, count in COUNTS.items():
        number = Counter(p.parent.name for p in out.glob(f'{split}/*/*'))
        assert set(number) == set(tool.CLASSES)
        assert sum(number.values()) == count
        assert max(number.values()) - min(number.values()) == 1
    for path in (out / 'val').glob('*/*.jpg'):
        assert path.read_bytes()[:3] == b'\xff\xd8\xff'
        image = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        assert image.shape == (32, 32, 3)
        assert np.ptp(image, axis=2).max() == 0
        assert image.min() < 30 and image.max() > 225
    name = tool.CLASSES[5]
    for number, split in enumerate(('train', 'val')):
        rng = np.random.default_rng((3, number, 12 + 5))
        path = out / split / name / '00001.jpg'
        image = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
        # JPEG is lossy, at quality 95 by a few grey levels.
        error = np.abs(image.astype(float) - tool.draw(5, rng, 32))
        assert error.mean() < 4 and error.max() < 32
    assert json.loads((out / 'meta.json').read_text()) == {
        'format': tool.FORMAT,
        **COUNTS,
        'size': 32,
        'seed': 3,
        'classes': list(tool.CLASSES),
    }


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


def _spectrum(image):
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


def _outline(image):
    """Angular harmonics of the largest figure: blind to place and rotation."""
    blurred = cv2.GaussianBlur(image, (0, 0), 1)
    mask = cv2.threshold(blurred, 0, 1, cv2.THRESH_OTSU)[1]
    if np.concatenate([mask[[0, -1]], mask[:, [0, -1]].T]).mean() > 0.5:
        mask = 1 - mask
    _, parts, stats, centres = cv2.connectedComponentsWithStats(mask)
    largest = 1 + stats[1:, cv2.CC_STAT_AREA].argmax()
    reach = 1.8 * math.sqrt(stats[largest, cv2.CC_STAT_AREA] / math.pi)
    polar = cv2.warpPolar(
        (parts == largest).astype(float),
        (16, 64),
        centres[largest],
        reach,
        cv2.WARP_POLAR_LINEAR + cv2.WARP_FILL_OUTLIERS,
    )
    return np.abs(np.fft.rfft(polar, axis=0))[:9].ravel()


def test_the_figure_tells_the_class_and_pixels_do_not(tool):
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
    describe, least = {
        'tool_make_shapes': (_outline, 0.7),
        'tool_make_textures': (_spectrum, 0.8),
    }[tool.__name__]
    features = np.stack([describe(image) for image in images])
    features = (features - features.mean(0)) / (features.std(0) + 1e-6)
    # Chance is 1 / 12; in the whole sets pixels give .19 (textures) and .26.
    assert accuracy(pixels) < 0.25
    assert accuracy(features) > least


def test_command_line(tool, tmp_path, monkeypatch, capsys):
    def run(*options):
        arguments = ['--train', 24, '--val', 12, '--size', 24]
        words = [tmp_path / 'set', *arguments, *options]
        monkeypatch.setattr(sys, 'argv', ['', *map(str, words)])
        tool.main()

    for name, value in (
        ('train', 11),
        ('val', 0),
        ('size', 23),
        ('seed', -1),
    ):
        with pytest.raises(SystemExit):
            run(f'--{name}', value)
        error = capsys.readouterr().err
        assert re.search(f'error: {name} must be .* got {value}', error)
    assert list(tmp_path.iterdir()) == []
    run('--seed', 2)
    meta = json.loads((tmp_path / 'set' / 'meta.json').read_text())
    assert meta['seed'] == 2
    assert len(list(tmp_path.glob('set/train/*/*.jpg'))) == 24
