# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The tool that draws class folders of textures."""

from collections import Counter

import cv2
import numpy as np

from ..helpers.tools import contents, load_tool

COUNTS = {'train': 125, 'val': 30}


def test_what_is_written(tmp_path):
    tool = load_tool('drawn_sets/make_textures')
    out, again = tmp_path / 'deep' / 'set', tmp_path / 'again'
    assert tool.make_textures(out, **COUNTS, size=32, seed=3)
    assert tool.make_textures(again, **COUNTS, size=32, seed=3, masks=True)
    files, masked = contents(out), contents(again)
    images = {name for name in files if name.endswith('.jpg')}
    assert all(masked[name] == files[name] for name in images)
    masks = {f'masks/{name[:-4]}.png' for name in images}
    assert masked.keys() - files.keys() == masks
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
        drawn, where = tool.draw(5, rng, 32)
        # JPEG is lossy, at quality 95 by a few grey levels.
        error = np.abs(image.astype(float) - drawn)
        assert error.mean() < 4 and error.max() < 32
        path = again / 'masks' / split / name / '00001.png'
        mask = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        assert set(np.unique(mask)) == {0, 6}
        np.testing.assert_array_equal(mask, where)
