# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The tool that draws class folders of textures."""

from collections import Counter

import cv2
import numpy as np

from ..helpers.tools import contents, load_tool

COUNTS = {'train': 125, 'val': 30}


def test_what_is_written(tmp_path):
    tool = load_tool('drawn_sets/make_textures')
    out = tmp_path / 'deep' / 'set'
    for folder in (out, tmp_path / 'again'):
        assert tool.make_textures(folder, **COUNTS, size=32, seed=3)
    files = contents(out)
    assert files == contents(tmp_path / 'again')
    # Not one image is drawn twice.
    assert len(files) == len(set(files.values())) == 125 + 30 + 1
    for split, count in COUNTS.items():
        number = Counter(p.parent.name for p in out.glob(f'{split}/*/*'))
        assert number.keys() == set(tool.CLASSES)
        assert number.total() == count
        assert max(number.values()) - min(number.values()) == 1
    for path in (out / 'val').glob('*/*.jpg'):
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
