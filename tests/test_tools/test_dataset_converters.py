# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Shards of a folder, lists of subsets, and mean and std of channels."""

import json
import shutil
import tarfile
from collections import Counter

import numpy as np
import pytest
import tifffile
from mmengine.config import Config

from mmmoca.datasets import ImageShards
from mmmoca.evaluation.subsets import read_subset

from ..helpers.stores import write_shards
from ..helpers.tools import contents, run_tool

SHARDS, SUBSETS, NUMBERS = (
    f'tools/dataset_converters/{name}.py'
    for name in ('make_shards', 'make_subset', 'band_statistics')
)


def test_shards(root, tmp_path):
    pytest.importorskip('webdataset')
    out = tmp_path / '100% of them'
    (tmp_path / 'images').symlink_to(root / 'train')
    (root / 'train/class_1/missing.jpg').symlink_to('nowhere.jpg')
    options = ['--with-label', '--number', 40, '--megabytes', 0.03]
    printed = run_tool(SHARDS, tmp_path / 'images', out, *options)
    (root / 'train/class_1/missing.jpg').unlink()
    assert 'left out: ' in printed and 'missing.jpg' in printed
    assert printed.endswith(f'{out}: 48 images, 1 could not be read\n')
    assert ImageShards(str(out)).get_gt_labels().sum() == 48
    shards = sorted(out.glob('*.tar'))
    assert len(shards) > 2
    for path in shards[:-1]:
        assert 30_000 < path.stat().st_size < 90_000
        assert f'{path.name}: ' in printed
        with tarfile.open(path) as tar:  # the same images give the same bytes
            assert {member.mtime for member in tar} == {0}
    write_shards(root / 'val', tmp_path / 'plain', with_label=False)
    assert len(contents(tmp_path / 'plain')) == 4  # two shards, their indexes


def test_no_shard_is_left_of_a_failure(root, tmp_path, monkeypatch):
    pytest.importorskip('webdataset')
    images = tmp_path / 'images'
    images.mkdir()
    (images / 'nowhere.png').symlink_to(tmp_path / 'absent')
    with pytest.raises(OSError, match=images.name):
        write_shards(images, tmp_path / 'out', with_label=False)
    shutil.rmtree(images)

    def full(*_):
        raise OSError('full')

    monkeypatch.setattr('webdataset.ShardWriter.write', full)
    with pytest.raises(OSError, match='full'):
        write_shards(root / 'val', tmp_path / 'out')
    assert not list(tmp_path.iterdir())


def test_subsets(root, tmp_path):
    classes = [f'class_{label}' for label in range(3)]

    def lists(name, *options):
        line = root / 'train', tmp_path / name, '--seed', 7, *options
        run_tool(SUBSETS, *line)
        return contents(tmp_path / name)

    draw = '--shots', 1, 4, '--percent', 10, 50
    written = lists('a', *draw, '--sets', 2)
    sizes = {f'{n}shot_set{i}.txt': n for n in (1, 4) for i in (0, 1)}
    sizes |= {'10percent.txt': 2, '50percent.txt': 8}
    assert written.keys() == sizes.keys()
    for name, size in sizes.items():
        # The loop reads what the tool writes.
        path = str(tmp_path / 'a' / name)
        found = read_subset(path, str(root / 'train'), classes)
        assert Counter(found.values()) == dict.fromkeys(range(3), size)
    assert written['4shot_set0.txt'] != written['4shot_set1.txt']
    again = lists('b', '--shots', 4, '--percent')
    assert len(again) == 3  # sets
    assert again['4shot_set1.txt'] == written['4shot_set1.txt']


@pytest.fixture(scope='module')
def bands(tmp_path_factory):
    """Write nine images of 13 channels in several sizes; -1 means no data.

    In float32, sums of squares would lose every digit of the last channel.
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
def test_numbers_of_a_folder(bands, tmp_path, nodata):
    folder, x = bands
    out = tmp_path / 'numbers.json'
    options = []
    if nodata is not None:
        options = ['--nodata=-1', '--channels', 13]
        x = np.where(x == nodata, np.nan, x)
    printed = run_tool(NUMBERS, folder, '--out', out, *options)
    numbers = json.loads(out.read_text())
    assert numbers['images'] == 9
    assert numbers['pixels'] == np.isfinite(x).sum(axis=0).tolist()
    mean, std = np.nanmean(x, axis=0), np.nanstd(x, axis=0)
    np.testing.assert_allclose(numbers['mean'], mean, rtol=1e-5)
    assert 'channel 7 is constant' in printed
    std[7] = 1
    np.testing.assert_allclose(numbers['std'], std, rtol=1e-5)
    # two lines for a config
    lines = printed.splitlines()[-2:]
    config = Config.fromstring(f'model = dict({"".join(lines)})', '.py')
    assert config.model == dict(mean=numbers['mean'], std=numbers['std'])


def test_numbers_of_some_images(bands, tmp_path):
    out = tmp_path / 'numbers.json'
    run_tool(NUMBERS, bands[0], '--images', 3, '--out', out)
    assert json.loads(out.read_text())['images'] == 3


def test_bands_of_other_shapes_are_refused(bands, tmp_path):
    printed = run_tool(NUMBERS, bands[0], '--channels', 4, code=2)
    assert '.tif' in printed and 'channels=4' in printed
    np.save(tmp_path / 'a.npy', np.zeros((4, 5)))
    np.save(tmp_path / 'b.npy', np.zeros((4, 5, 3)))
    assert '.npy' in run_tool(NUMBERS, tmp_path, code=2)
