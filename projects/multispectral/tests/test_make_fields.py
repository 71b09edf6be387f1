# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The drawn multi-spectral set: images, masks and labels agree."""

import cv2
import numpy as np
import tifffile

from tests.helpers.tools import load_tool


def test_images_and_masks(tmp_path):
    tool, out = load_tool('../projects/multispectral/make_fields'), tmp_path
    assert tool.make_fields(out, train=13, val=6, size=24)
    paths = sorted(out.glob('train/*/*.tif'))
    assert len(paths) == 13
    for path in paths:
        name = path.relative_to(out).with_suffix('.png')
        mask = cv2.imread(str(out / 'masks' / name), cv2.IMREAD_UNCHANGED)
        label = mask[12, 12]
        assert tool.CLASSES[label] == path.parent.name
        rng = np.random.default_rng((0, 0, 6 * int(path.stem) + label))
        bands, classes = tool.draw(label, rng, 24)
        np.testing.assert_array_equal(mask, classes)
        image = tifffile.imread(path)
        assert image.shape == (24, 24, 13) and image.dtype == np.uint16
        np.testing.assert_array_equal(image, bands)
    assert not tool.make_fields(out, train=13, val=6, size=24)
