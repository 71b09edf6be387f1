# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import cv2
import numpy as np
import pytest
import tifffile
from mmengine.logging import MMLogger
from PIL import Image

from mmmoca.datasets import LoadImage, functional

from .photos import photo


def write(path, img, *params):
    assert cv2.imwrite(str(path), img, params)
    return str(path)


def test_loads_what_is_in_the_file(tmp_path):
    """By each decoder, and of any channels and depth."""
    rng = np.random.default_rng(0)
    img, path = photo(), tmp_path / 'a.png'
    deep = rng.integers(0, 65536, (12, 16, 4), np.uint16)
    bands = rng.integers(0, 256, (9, 7, 5), np.uint8)
    write(path, img)
    write(tmp_path / 'deep.png', deep)
    tifffile.imwrite(tmp_path / 'bands.tif', bands)
    for name, expected, options in (
        ('a.png', img, {}),
        ('a.png', img, dict(imdecode_backend='pillow')),
        ('deep.png', deep, dict(color_type='unchanged')),
        ('bands.tif', bands, dict(imdecode_backend='tifffile')),
    ):
        for dtype in (expected.dtype, np.float32):
            load = LoadImage(**options, to_float32=dtype == np.float32)
            found = load.read(tmp_path / name)
            wanted = expected.astype(dtype)
            np.testing.assert_array_equal(found, wanted, strict=True)
    grey = LoadImage(color_type='grayscale').read(path)
    np.testing.assert_allclose(grey, functional.grayscale(img)[..., 0], atol=1)


def test_unreadable_is_named_or_skipped_and_counted(
    tmp_path, caplog, capsys, monkeypatch
):
    MMLogger.get_current_instance().addHandler(caplog.handler)
    good = cv2.imencode('.jpg', photo())[1].tobytes()
    contents = dict(half=good[: len(good) // 2], text=b'no image', empty=b'')
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / 'folder').mkdir()
    names = (*contents, 'folder', 'missing')
    paths = [str(tmp_path / name) for name in names]
    loader, strict = LoadImage(), LoadImage(skip_unreadable=False)
    for path in [*paths, *paths]:
        assert loader({'img_path': path}) is None
        with pytest.raises(OSError, match=f'cannot read the image {path}: '):
            strict({'img_path': path})
    assert len(caplog.records) == len(paths)  # a warning each, once
    for count, (path, record) in enumerate(zip(paths, caplog.records), 1):
        assert path in record.getMessage()
        assert f'; {count} unreadable so far' in record.getMessage()
    # MMLogger shows errors only of another rank, and this is none.
    monkeypatch.setattr('mmmoca.datasets.loading.get_rank', lambda: 1)
    LoadImage()({'img_path': path})
    assert path in capsys.readouterr().out
    assert {record.levelname for record in caplog.records} == {'WARNING'}


def test_too_many_unreadable_stop_the_run(tmp_path):
    good, bad = write(tmp_path / 'a.png', photo()), f'{tmp_path}/missing'
    load = LoadImage(max_unreadable=0.5)
    for index in range(60):
        result = load.transform(dict(img_path=(good, bad)[index % 2]))
        assert (result is None) == (index % 2)
    with pytest.raises(OSError, match='31 of the 61.*max_unreadable='):
        load.transform(dict(img_path=bad))
    with pytest.raises(ValueError, match='between 0 and 1'):
        LoadImage(max_unreadable=2)


def test_an_error_of_the_pipeline_is_not_taken_for_a_bad_image():
    with pytest.raises(KeyError, match='img_path'):
        LoadImage()({'path': 'a.jpg'})


def test_jpeg_is_decoded_at_the_scale_that_suffices(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', 100)  # Pillow's own limit
    img = photo(height=200, width=300)
    path, png = (write(tmp_path / f'a.{kind}', img) for kind in ('jpg', 'png'))
    for reduce_to, shape in (
        (None, (200, 300)),
        (101, (200, 300)),
        (100, (100, 150)),
        (51, (100, 150)),
        (50, (50, 75)),
        (1, (25, 38)),
    ):
        loader = LoadImage(reduce_to=reduce_to)
        results = loader({'img_path': path})
        assert results['img'].shape == (*shape, 3)
        assert results['img_shape'] == results['ori_shape'] == shape
        assert loader.read(png).shape == img.shape
