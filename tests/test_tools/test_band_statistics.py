# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The numbers to normalise by, against NumPy on the whole set."""

import json

import numpy as np
import pytest
import tifffile
from mmengine.config import Config

from ..helpers.tools import run_tool

TOOL = 'tools/dataset_converters/band_statistics.py'


@pytest.fixture(scope='module')
def bands(tmp_path_factory):
    """Nine images of several sizes, 13 channels; -1 is no measurement.

    float32 sums of squares would leave no digit of the last channel.
    """
    folder = tmp_path_factory.mktemp('bands')
    rng = np.random.default_rng(0)
    level, spread = rng.uniform(1e3, 9e3, 13), rng.uniform(10, 900, 13)
    pixels = []
    for index in range(9):
        img = rng.standard_normal((20 + index, 30, 13)) * spread + level
        img = np.rint(img + 500 * index)
        img[..., 12] = 1e7 + rng.integers(9, size=img.shape[:2])
        img[rng.random(img.shape) < 0.1] = -1
        img[..., 7] = 4000
        (folder / f'{index % 2}').mkdir(exist_ok=True)
        path = folder / f'{index % 2}/{index}.tif'
        tifffile.imwrite(path, img.astype(np.float32))
        pixels.append(img.reshape(-1, 13))
    (folder / '0/readme.txt').write_text('no image')
    (folder / '0/broken.tif').write_bytes(b'no image')
    return folder, np.concatenate(pixels)


@pytest.mark.parametrize('nodata', [None, -1])
def test_a_folder(bands, tmp_path, nodata):
    folder, x = bands
    out = tmp_path / 'numbers.json'
    options = []
    if nodata is not None:
        options = ['--nodata=-1', '--channels', 13]
        x = np.where(x == nodata, np.nan, x)
    printed = run_tool(TOOL, folder, '--out', out, *options)
    numbers = json.loads(out.read_text())
    assert numbers['images'] == 9
    assert numbers['pixels'] == np.isfinite(x).sum(axis=0).tolist()
    mean, std = np.nanmean(x, axis=0), np.nanstd(x, axis=0)
    np.testing.assert_allclose(numbers['mean'], mean, rtol=1e-5)
    assert 'channel 7 is constant' in printed
    std[7] = 1
    np.testing.assert_allclose(numbers['std'], std, rtol=1e-5)
    # Two lines for a config.
    lines = printed.splitlines()[-2:]
    config = Config.fromstring(f'model = dict({"".join(lines)})', '.py')
    assert config.model == dict(mean=numbers['mean'], std=numbers['std'])


def test_some_images_only(bands, tmp_path):
    out = tmp_path / 'numbers.json'
    run_tool(TOOL, bands[0], '--images', 3, '--out', out)
    assert json.loads(out.read_text())['images'] == 3


def test_images_of_other_shapes_are_refused(bands, tmp_path):
    printed = run_tool(TOOL, bands[0], '--channels', 4, code=2)
    assert '.tif has the shape' in printed and 'channels=4' in printed
    np.save(tmp_path / 'a.npy', np.zeros((4, 5)))
    np.save(tmp_path / 'b.npy', np.zeros((4, 5, 3)))
    assert 'take the file out' in run_tool(TOOL, tmp_path, code=2)
