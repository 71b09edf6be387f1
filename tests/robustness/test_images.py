# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Image folders that are not what they should be."""

import pytest

from mmmoca.datasets import LoadImage

from ..images import write_images


def test_too_many_broken_images_stop_the_run(tmp_path):
    write_images(tmp_path, train=1, val=1, classes=1)
    bad = tmp_path / 'broken.jpg'
    bad.write_bytes(b'no image')
    paths = str(tmp_path / 'train/class_0/0.jpg'), str(bad)
    load = LoadImage(max_unreadable=0.5)
    for index in range(60):
        result = load.transform(dict(img_path=paths[index % 2]))
        assert (result is None) == (index % 2)
    with pytest.raises(OSError, match='31 of the 61.*max_unreadable='):
        load.transform(dict(img_path=str(bad)))
    with pytest.raises(ValueError, match='between 0 and 1'):
        LoadImage(max_unreadable=2)
