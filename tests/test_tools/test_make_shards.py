# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""From a folder to shards, whole or not at all."""

import shutil
import tarfile

import pytest

from mmmoca.datasets import ImageShards

from ..helpers.stores import write_shards
from ..helpers.tools import contents, run_tool

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
