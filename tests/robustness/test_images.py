# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Image folders that are not what they should be."""

import os
from pathlib import Path

import pytest
from mmengine.logging import MMLogger

from mmmoca.datasets import LoadImage

from ..images import write_images


def test_too_many_broken_images_stop_the_run(tmp_path):
    write_images(tmp_path, train=1, val=1, classes=1)
    good = str(tmp_path / 'train/class_0/0.jpg')
    bad = str(tmp_path / 'broken.jpg')
    Path(bad).write_bytes(b'no image')
    load = LoadImage(max_unreadable=0.5)
    for index in range(60):
        result = load.transform(dict(img_path=bad if index % 2 else good))
        assert (result is None) == (index % 2)
    with pytest.raises(OSError, match='31 of the 61.*max_unreadable='):
        load.transform(dict(img_path=bad))
    with pytest.raises(ValueError, match='between 0 and 1'):
        LoadImage(max_unreadable=2)


def test_names_that_are_no_utf8_are_logged(tmp_path):
    log = tmp_path / 'log'
    logger = MMLogger.get_instance('names', log_file=str(log))
    name = os.fsdecode(bytes(tmp_path) + b'/\xff.jpg')
    Path(name).write_bytes(b'no image')
    assert LoadImage().transform(dict(img_path=name)) is None
    for handler in logger.handlers:
        handler.flush()
    assert r'\udcff.jpg' in log.read_text()
