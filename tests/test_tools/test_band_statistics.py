# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The numbers to normalise by, against NumPy on the whole set."""

import json

import numpy as np
import pytest
import tifffile
from mmengine.config import Config

from ..tools import load_tool, run_tool

TOOL = 'tools/analysis_tools/band_statistics.py'


@pytest.fixture(scope='module')
def bands(tmp_path_factory):
    """Nine images of several sizes, 13 channels; -1 is no measurement."""
    folder = tmp_path_factory.mktemp('bands')
    rng = np.random.default_rng(0)
    level, spread = rng.uniform(1e3, 9e3, 13), rng.uniform(10, 900, 13)
    pixels = []
    for index in range(9):
        img = rng.standard_normal((20 + index, 30, 13)) * spread + level
        img = (img + 500 * index).astype(np.int16)
        img[rng.random(img.shape) < 0.1] = -1
        img[..., 7] = 4000
        (folder / f'{index % 2}').mkdir(exist_ok=True)
        tifffile.imwrite(folder / f'{index % 2}/{index}.tif', img)
        pixels.append(img.reshape(-1, 13).astype(float))
    (folder / '0/readme.txt').write_text('no image')
    (folder / '0/broken.tif').write_bytes(b'no image')
    return folder, pixels


def test_large_numbers_lose_nothing():
    """float32 sums of squares would leave no digit."""
    tool = load_tool('analysis_tools/band_statistics')
    x = 1e7 + np.random.default_rng(0).standard_normal((9, 50, 40, 3))
    mean, std = tool.mean_and_std([*map(tool.moments_of, x)])
    np.testing.assert_allclose(mean, x.mean(axis=(0, 1, 2)), rtol=1e-14)
    np.testing.assert_allclose(std, x.std(axis=(0, 1, 2)), rtol=1e-9)


def test_a_folder(bands, tmp_path):
    folder, pixels = bands
    out = tmp_path / 'numbers.json'
    printed = run_tool(TOOL, folder, '--out', out)
    numbers = json.loads(out.read_text())
    x = np.concatenate(pixels)
    np.testing.assert_allclose(numbers['mean'], x.mean(axis=0), rtol=1e-5)
    std = x.std(axis=0)
    std[7] = 1
    np.testing.assert_allclose(numbers['std'], std, rtol=1e-5)
    assert numbers['images'] == 9 and numbers['pixels'] == [len(x)] * 13
    assert 'channel 7 is constant' in printed
    # Two lines for a config.
    lines = printed.splitlines()[-2:]
    config = Config.fromstring(f'model = dict({"".join(lines)})', '.py')
    assert config.model == dict(mean=numbers['mean'], std=numbers['std'])


def test_no_measurement_and_some_images_only(bands, tmp_path):
    folder, pixels = bands
    out = tmp_path / 'numbers.json'
    run_tool(TOOL, folder, '--nodata=-1', '--channels', 13, '--out', out)
    numbers = json.loads(out.read_text())
    x = np.concatenate(pixels)
    x[x == -1] = np.nan
    np.testing.assert_allclose(numbers['mean'], np.nanmean(x, 0), rtol=1e-5)
    np.testing.assert_allclose(
        np.delete(numbers['std'], 7), np.delete(np.nanstd(x, 0), 7), rtol=1e-5
    )
    assert numbers['pixels'] == np.isfinite(x).sum(axis=0).tolist()
    run_tool(TOOL, folder, '--images', 3, '--out', out)
    assert json.loads(out.read_text())['images'] == 3


def test_images_of_other_shapes_are_refused(bands, tmp_path):
    printed = run_tool(TOOL, bands[0], '--channels', 4, code=2)
    assert '.tif has the shape' in printed and 'channels=4' in printed
    np.save(tmp_path / 'a.npy', np.zeros((4, 5)))
    np.save(tmp_path / 'b.npy', np.zeros((4, 5, 3)))
    assert 'take the file out' in run_tool(TOOL, tmp_path, code=2)
