# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images of any depth and channel count are loaded as they were written."""

import itertools
import os
import pickle

import cv2
import numpy as np
import pytest
import tifffile
from mmcv.transforms import LoadImageFromFile

from mmmoca.apis.images import Images
from mmmoca.datasets import ImageFolder, LoadBands, LoadImage
from mmmoca.datasets.image_set import judge_images
from mmmoca.datasets.look import look_at
from mmmoca.engine.runners import ConsoleRunner

from ..helpers.payloads import Call

RNG = np.random.default_rng(0)


def draw(dtype, *shape):
    """Draw numbers from the whole range of a type."""
    if np.dtype(dtype).kind == 'f':
        return (1e3 * RNG.standard_normal(shape)).astype(dtype)
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def write(path, img):
    ways = {'.npy': np.save, '.tif': tifffile.imwrite, '.png': cv2.imwrite}
    ways[path.suffix](str(path), img)
    return str(path)


@pytest.mark.parametrize(
    'suffix, dtype', [('.tif', np.int16), ('.npy', np.float64)]
)
def test_any_depth_channels_first_or_last(tmp_path, suffix, dtype):
    img = draw(dtype, 9, 12, 13)
    for name, saved in (('last', img), ('first', img.transpose(2, 0, 1))):
        path = write(tmp_path / f'{name}{suffix}', saved)
        for axis in (None, name):
            results = LoadBands(13, axis)({'img_path': path})
            np.testing.assert_array_equal(
                results['img'], img.astype(np.float32), strict=True
            )
            assert results['img_shape'] == results['ori_shape'] == (9, 12)
        other = dict(first='last', last='first')[name]
        with pytest.raises(ValueError, match=other):
            LoadBands(13, other).read(path)


@pytest.mark.parametrize(
    'dtype, channels', [(np.uint8, 1), (np.uint16, 3), (np.uint8, 4)]
)
def test_png_in_the_order_of_the_file(tmp_path, dtype, channels):
    rgb = draw(dtype, 9, 12, channels)
    bgr = rgb[..., [2, 1, 0, 3][:channels]] if channels > 1 else rgb
    path = write(tmp_path / 'a.png', bgr)
    np.testing.assert_array_equal(LoadBands(channels).read(path), rgb)


def test_channels_that_are_not_clear(tmp_path):
    img = draw(np.uint8, 5, 12, 5)
    path = write(tmp_path / 'a.npy', img)
    with pytest.raises(ValueError, match='a.npy'):
        LoadBands(5).read(path)
    np.testing.assert_array_equal(LoadBands(5, 'last').read(path), img)
    first = LoadBands(5, 'first').read(path)
    np.testing.assert_array_equal(first, img.transpose(1, 2, 0))


def test_16_bits_are_not_read_as_8_unasked(tmp_path):
    for index in range(3):
        write(tmp_path / f'{index}.png', draw(np.uint16, 9, 12))

    def folder(loader):
        return ImageFolder(tmp_path, with_label=False, pipeline=[loader])

    with pytest.raises(ValueError, match='2.png'):
        folder(LoadImage(color_type='grayscale'))
    dataset = folder(LoadImageFromFile())
    judge_images(dataset)  # as a run does
    assert '3 of 3' in look_at(dict(train=dataset)).wrong[0]
    for loader in (LoadImage(cut_to_8_bits=True), LoadBands(1)):
        assert len(folder(loader)) == 3
    # A few such files among others need no error.
    write(tmp_path / '1.png', draw(np.uint8, 9, 12))
    assert len(folder(LoadImage())) == 3


def test_pixels_without_a_measurement(tmp_path):
    img = draw(np.float32, 9, 12, 3)
    expected = img.copy()
    img[:4, :, 0] = expected[:4, :, 0] = -9999
    img[2, 3, 1] = np.nan
    img[..., 2] = -9999
    path = write(tmp_path / 'a.tif', img)
    expected[:4, :, 0] = img[4:, :, 0].mean()
    expected[2, 3, 1] = np.nanmean(img[..., 1])
    expected[..., 2] = 0
    np.testing.assert_allclose(
        LoadBands(3, nodata=-9999).read(path), expected, 1e-5, atol=1e-3
    )
    filled = LoadBands(3, nodata=-9999, fill=7).read(path)
    assert (filled[:4, :, 0] == 7).all() and filled[2, 3, 1] == 7
    nan = LoadBands(3, nodata='nan').read(path)
    assert np.isfinite(nan).all() and nan[0, 0, 0] == -9999


def test_files_that_are_no_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    planted = Call(os.mkdir, 'planted')
    np.save('objects.npy', np.array([[planted]], object))
    (tmp_path / 'pickle.npy').write_bytes(pickle.dumps(planted))
    for name in ('objects.npy', 'pickle.npy'):
        with pytest.raises(OSError, match=name):
            LoadBands(1).read(name)
        assert LoadBands(1)({'img_path': name}) is None
    assert not (tmp_path / 'planted').exists()


def test_bands_of_mixed_depth(tmp_path):
    for name, dtype in (('a', np.uint8), ('b', np.uint16), ('c', bool)):
        np.save(tmp_path / f'{name}.npy', np.ones((9, 12, 5), dtype))
    load = LoadBands(5)
    load.read(tmp_path / 'a.npy')
    for name in 'bc':
        with pytest.raises(ValueError, match=f'{name}.npy.*a.npy'):
            load.read(tmp_path / f'{name}.npy')
    np.save(tmp_path / 'd.npy', np.ones((9, 12, 5), np.int8))
    load.read(tmp_path / 'd.npy')


def folder(root):
    """Return a function that loads an image of our data set."""
    options = dict(with_label=False, extensions=['.npy'])
    return ImageFolder(root, pipeline=[LoadBands(5)], **options).prepare_data


def foreign_set(root):
    """Return the loader of MMPreTrain's data set, built as in a run."""
    load = dict(type='mmmoca.LoadBands', channels=5)
    dataset = dict(
        type='mmpretrain.CustomDataset', data_prefix=root, pipeline=[load]
    )
    dataset |= dict(with_label=False, extensions=['.npy'])
    sampler = dict(type='DefaultSampler', shuffle=False)
    loader = dict(dataset=dataset, sampler=sampler, batch_size=1)
    built = ConsoleRunner.build_dataloader(dict(loader, num_workers=0))
    return built.dataset.prepare_data


def embedded(root):
    """Return a function that prepares an image as `embed` does."""
    load = dict(type='mmmoca.LoadBands', channels=5)
    found = Images([f'{root}/{name}.npy' for name in 'abc'], [load])
    return lambda i: None if isinstance(found[i], Exception) else found[i]


@pytest.mark.parametrize('door', [folder, foreign_set, embedded])
def test_depth_is_that_of_the_set(tmp_path, door):
    """The depth does not depend on what a worker happens to read first."""
    (tmp_path / 'a.npy').write_text('damaged')
    for name, dtype in (('b', np.uint8), ('c', np.uint16)):
        np.save(tmp_path / f'{name}.npy', np.ones((9, 12, 5), dtype))
    load = door(str(tmp_path))
    assert load(2) is None and load(1) is not None


def read_of(root, workers, done=0):
    """Read two epochs without the skipped images; return paths and pixels."""
    steps = [
        dict(type='mmmoca.SeedTransforms'),
        dict(type='mmmoca.LoadBands', channels=5, max_unreadable=1),
        dict(type='mmpretrain.PackInputs', meta_keys=['img_path']),
    ]
    dataset = dict(type='mmmoca.ImageFolder', data_root=root, pipeline=steps)
    dataset |= dict(with_label=False, extensions=['.npy'])
    sampler = dict(type='mmmoca.SeededSampler', infinite=True)
    cfg = dict(dataset=dataset, sampler=sampler, num_workers=workers)
    loader = ConsoleRunner.build_dataloader(
        cfg | dict(batch_size=2, collate_fn=dict(type='pseudo_collate')), 3
    )
    loader.sampler.skip(done)
    return [
        (sample.img_path, inputs[0, 0, 0].item())
        for batch in itertools.islice(loader, 10 - done // 2)
        for inputs, sample in zip(batch['inputs'], batch['data_samples'])
    ]


@pytest.mark.slow
def test_mixed_depth_with_workers_and_a_resume(tmp_path):
    """The replacements of images do not depend on the number of workers."""
    for index in range(10):
        dtype = np.uint16 if index in (0, 3, 7) else np.uint8
        img = np.full((9, 12, 5), index + 1, dtype)
        np.save(tmp_path / f'{index}.npy', img)
    whole = read_of(str(tmp_path), 0)
    assert len(whole) == 20 and len({*whole}) in (3, 7)  # of one depth
    assert read_of(str(tmp_path), 2) == whole
    assert read_of(str(tmp_path), 2, done=6) == whole[6:]
