# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import io
from functools import partial

import cv2
import numpy as np
import pytest
import tifffile
from mmcv.transforms import LoadImageFromFile
from mmengine.fileio import FileClient, HardDiskBackend
from mmengine.logging import MMLogger
from PIL import Image

from mmmoca.datasets import LoadBands, LoadImage, decoding
from mmmoca.datasets.image_set import judging

from ..helpers.photos import photo

AVIF = cv2.haveImageWriter('a.avif')


def write(path, img, *params):
    assert cv2.imwrite(str(path), img, params)
    return str(path)


class Store(HardDiskBackend):
    """A storage whose addresses are not paths."""

    def __init__(self, folder):
        self.folder = folder

    def get(self, path):
        return super().get(f'{self.folder}/{path}')


def test_arguments_of_a_storage_are_kept(tmp_path):
    FileClient.register_backend('store', Store, force=True)
    write(tmp_path / 'a.png', photo())
    args = dict(backend='store', folder=str(tmp_path))
    with pytest.warns(DeprecationWarning):
        load = judging(LoadImageFromFile(file_client_args=args))
    assert isinstance(load, LoadImage)
    np.testing.assert_array_equal(load.read('a.png'), photo())


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
        with pytest.raises(OSError, match=path):
            strict({'img_path': path})
    assert len(caplog.records) == len(paths)  # one warning each
    for count, (path, record) in enumerate(zip(paths, caplog.records), 1):
        assert path in record.getMessage()
        assert f' {count} ' in record.getMessage()
    # On other ranks, MMLogger shows only errors, and this is a warning.
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
    # After n more, 30 + n of 60 + n are bad. Chance explains up to half of
    # them, and 1.5 (60 + n)^.5 more.
    for _ in range(28):
        assert load.transform(dict(img_path=bad)) is None
    with pytest.raises(OSError, match='max_unreadable=0.8'):
        load.transform(dict(img_path=bad))


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


@pytest.mark.parametrize(
    ('load', 'kinds'),
    [
        (LoadImage, ('png', 'jpg', 'webp', *AVIF * ['avif'], 'tif')),
        (partial(LoadImage, imdecode_backend='pillow'), ('png', 'jpg')),
        (partial(LoadBands, 3), ('png', 'tif', 'npy')),
    ],
)
def test_one_limit_of_pixels_for_all_readers(
    tmp_path, monkeypatch, load, kinds
):
    img = photo(0, 30, 40)
    for kind in kinds:
        # Pillow's limit also applies to its readers of WebP and TIFF.
        own = None if kind in ('webp', 'tif') else 100
        monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', own)
        path = tmp_path / f'a.{kind}'
        ways = dict(npy=np.save, tif=tifffile.imwrite)
        ways.get(kind, write)(path, img)
        for limit in (1200, 1199):
            monkeypatch.setattr(decoding, 'PIXELS', limit)
            if limit == 1200 or kind == 'npy':
                load().read(path)
                continue
            with pytest.raises(OSError, match=path.name):
                load().read(path)


def test_no_room_is_made_for_what_a_header_says():
    np.save(file := io.BytesIO(), photo(0, 30, 40))
    huge = file.getvalue().replace(b'(30, 40, 3)', b'(99999, 9) ')
    with pytest.raises(OSError):
        LoadBands(3).load(huge, 'a')
