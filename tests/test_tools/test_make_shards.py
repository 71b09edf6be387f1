# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""From a folder to shards, whole or not at all."""

import shutil

import pytest

from mmmoca.datasets import ImageFolder, ImageShards

from ..stores import write_shards
from ..tools import run_tool

pytest.importorskip('webdataset')
TOOL = 'tools/dataset_converters/make_shards.py'


def test_command(root, tmp_path):
    out = tmp_path / '100% of them'
    (tmp_path / 'images').symlink_to(root / 'train')
    (root / 'train/class_1/missing.jpg').symlink_to('nowhere.jpg')
    options = ['--with-label', '--number', 40, '--megabytes', 0.03]
    printed = run_tool(TOOL, tmp_path / 'images', out, *options)
    (root / 'train/class_1/missing.jpg').unlink()
    assert 'left out: ' in printed and 'missing.jpg' in printed
    assert printed.endswith(f'{out}: 48 images, 1 could not be read\n')
    dataset = ImageShards(str(out))
    folder = ImageFolder(str(root / 'train'))
    assert dataset.CLASSES == folder.CLASSES
    assert (dataset.get_gt_labels() == folder.get_gt_labels()).all()
    shards = sorted(out.glob('*.tar'))
    assert len(shards) > 2
    for path in shards[:-1]:
        assert 30_000 < path.stat().st_size < 90_000
        assert f'{path.name}: ' in printed


def test_same_images_give_the_same_bytes(root, tmp_path):
    for name in 'ab':
        write_shards(root / 'val', tmp_path / name, with_label=False)
    first, second = (
        [path.read_bytes() for path in sorted((tmp_path / n).glob('*.tar'))]
        for n in 'ab'
    )
    assert first == second and len(first) == 2


def test_nothing_is_left_of_a_failure(root, tmp_path, monkeypatch):
    images = tmp_path / 'images'
    images.mkdir()
    (images / 'nowhere.png').symlink_to(tmp_path / 'absent')
    with pytest.raises(OSError, match='none of the 1 images'):
        write_shards(images, tmp_path / 'out', with_label=False)
    shutil.rmtree(images)

    def full(*_):
        raise OSError('no space left')

    monkeypatch.setattr('webdataset.ShardWriter.write', full)
    with pytest.raises(OSError, match='no space left'):
        write_shards(root / 'val', tmp_path / 'out')
    assert not list(tmp_path.iterdir())
