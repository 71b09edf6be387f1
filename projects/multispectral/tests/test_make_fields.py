# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The drawn multi-spectral set: images, masks and labels agree."""

import cv2
import numpy as np
import pytest

from tests.tools import load_tool


@pytest.fixture(scope='module')
def tool():
    return load_tool('../projects/multispectral/make_fields')


@pytest.mark.parametrize('bands', [1, 13])
def test_images_and_masks(tool, tmp_path, bands):
    tifffile = pytest.importorskip('tifffile')
    suffix = '.tif' if bands == 13 else '.png'
    out = tmp_path / 'set'
    assert tool.make_fields(out, train=13, val=6, size=24, bands=bands)
    paths = sorted(out.glob(f'train/*/*{suffix}'))
    assert len(paths) == 13
    for path in paths:
        if bands == 13:
            image = tifffile.imread(path)
            assert image.shape == (24, 24, 13)
        else:
            image = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
            assert image.shape == (24, 24)
        assert image.dtype == np.uint16
        name = path.relative_to(out).with_suffix('.png')
        mask = cv2.imread(str(out / 'masks' / name), cv2.IMREAD_UNCHANGED)
        label = mask[12, 12]
        assert tool.CLASSES[label] == path.parent.name
        rng = np.random.default_rng((0, 0, 6 * int(path.stem) + label))
        drawn, classes = tool.draw(label, rng, 24)
        np.testing.assert_array_equal(mask, classes)
        if bands == 1:
            drawn = drawn[..., tool.NEAR_INFRARED]
        np.testing.assert_array_equal(image, drawn)
    assert not tool.make_fields(out, train=13, val=6, size=24, bands=bands)


def test_bad_numbers(tool, tmp_path):
    for wrong, told in (
        (dict(bands=3), 'bands must be 13 or 1, but got 3'),
        (dict(val=5), 'val must be at least 6, but got 5'),
        (dict(size=15), 'size must be at least 16, but got 15'),
    ):
        with pytest.raises(ValueError, match=told):
            tool.make_fields(tmp_path / 'set', **wrong)
    assert not list(tmp_path.iterdir())
