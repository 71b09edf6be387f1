# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Tar files and Hugging Face data sets against the folder they are from."""

import gzip
import io
import logging
import os
import shutil
import tarfile

import pytest
import torch
from mmengine import Config, fileio
from mmengine.dataset import default_collate
from mmengine.logging import MMLogger
from mmengine.registry import DefaultScope
from mmpretrain.registry import DATASETS
from torch.utils.data import DataLoader

from mmmoca.apis.embedding import list_digest
from mmmoca.datasets import ImageShards, SeededSampler, image_shards
from mmmoca.evaluation.subsets import images_by_class

from ..errors import raises
from ..images import CONFIGS
from ..stores import write_arrow, write_shards
from .test_image_folder import write

LOAD = [dict(type='mmmoca.LoadImage', max_unreadable=1)]
STORES = {
    'mmmoca.ImageFolder': 'folder',
    'mmmoca.ImageShards': 'shards',
    'mmmoca.HFImages': 'arrow',
}


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    """Eleven images of two classes, one of them damaged, in all stores."""
    pytest.importorskip('webdataset')
    pytest.importorskip('datasets')
    root = tmp_path_factory.mktemp('stores')
    for i in range(10):
        name = ('dog', 'cat/deep.er')[i % 2]
        write(root / f'folder/{name}/{i}.v2{(".JPEG", ".png")[i % 3 > 0]}', i)
    (root / 'folder/cat/bad.jpg').write_text('not an image')
    assert write_shards(root / 'folder', root / 'shards', 4) == (11, 0)
    write_arrow(root / 'folder', root / 'arrow')
    return root


@pytest.fixture
def shards(root, tmp_path):
    """The shards, to be spoiled."""
    return shutil.copytree(root / 'shards', tmp_path / 'shards')


def build(root, kind, **options):
    settings = dict(type=kind, data_root=str(root / STORES[kind]))
    return DATASETS.build(settings | dict(pipeline=LOAD) | options)


def batches(root, kind, workers):
    """Views, indices and labels of an epoch of two ranks."""
    cfg = Config.fromfile(CONFIGS / '_base_/datasets/imagenet_two-views.py')
    cfg.train_pipeline[1].max_unreadable = 1
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        dataset = build(root, kind, pipeline=cfg.train_pipeline)
    found = []
    for rank in range(2):
        sampler = SeededSampler(dataset, seed=0)
        sampler.rank, sampler.world_size, sampler.total_size = rank, 2, 12
        for batch in DataLoader(
            dataset,
            batch_size=3,
            sampler=sampler,
            num_workers=workers,
            collate_fn=default_collate,
        ):
            labels = [int(s.gt_label) for s in batch['data_samples']]
            places = [int(s.sample_idx) for s in batch['data_samples']]
            found.append((torch.stack(batch['inputs']), places, labels))
    return found


def test_same_samples_from_all_stores(root):
    expected = batches(root, 'mmmoca.ImageFolder', 0)
    assert len(expected) == 4
    for views, places, _ in expected:
        assert views.shape == (2, len(places), 3, 224, 224)
        assert views.dtype == torch.uint8 and (views[0] != views[1]).any()
    for kind in ('mmmoca.ImageShards', 'mmmoca.HFImages'):
        for actual, wanted in zip(batches(root, kind, 2), expected):
            assert torch.equal(actual[0], wanted[0])
            assert actual[1:] == wanted[1:]


@pytest.mark.parametrize('kind', STORES)
def test_damaged_images_are_named_and_counted(root, kind, caplog):
    MMLogger.get_current_instance().addHandler(caplog.handler)
    dataset = build(root, kind)
    assert dataset.CLASSES == ('cat', 'dog') and len(dataset) == 11
    assert dataset.get_gt_labels().tolist() == [0] * 6 + [1] * 5
    caplog.clear()
    assert dataset[0]['sample_idx'] != 0
    path = dataset.get_data_info(0)['img_path']
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f'cannot read the image {path}: ' in record.getMessage()
    assert '; 1 unreadable so far' in record.getMessage()
    with raises(OSError, path, 'evaluation skips nothing'):
        build(root, kind, test_mode=True)[0]
    assert path.endswith(
        {
            'mmmoca.ImageFolder': '/folder/cat/bad.jpg',
            'mmmoca.ImageShards': '+12/cat/00000000_bad.jpg',
            'mmmoca.HFImages': '/arrow#0/image',
        }[kind]
    )


def test_webdataset_reads_the_same(root):
    """What make_shards writes is what the library means by its layout."""
    from webdataset import WebDataset

    places = [str(path) for path in sorted((root / 'shards').glob('*.tar'))]
    assert len(places) == 3
    folder = build(root, 'mmmoca.ImageFolder')
    dataset = build(root, 'mmmoca.ImageShards')
    samples = list(WebDataset(places, shardshuffle=False))
    assert len(samples) == 11
    for i, sample in enumerate(samples):
        path = dataset.get_data_info(i)['img_path']
        key, suffix = path.rpartition('/')[2].split('.')
        assert sample['__key__'].endswith(key)
        assert sample['cls'] == b'%d' % folder.get_data_info(i)['gt_label']
        content = fileio.get(path)
        assert (
            sample[suffix]
            == content
            == fileio.get(folder.get_data_info(i)['img_path'])
        )


@pytest.mark.parametrize(
    'kind, file',
    [
        ('mmmoca.ImageFolder', 'dog/0.v2.JPEG'),
        ('mmmoca.ImageShards', 'images-000002.tar'),
        ('mmmoca.HFImages', 'state.json'),
    ],
)
def test_features_are_kept_until_a_file_changes(root, kind, file):
    paths = [sample['img_path'] for sample in build(root, kind).data_list]
    digest = list_digest(paths)
    os.utime(root / STORES[kind] / file, (0, 0))
    assert digest != list_digest(paths)


def test_lists_of_images_need_folders(root):
    with raises(ValueError, 'tar://', 'no folder', 'use mmmoca.ImageFolder'):
        images_by_class(build(root, 'mmmoca.ImageShards'))


def test_a_file_or_a_pattern(shards):
    options = dict(with_label=False, pipeline=LOAD)
    one = ImageShards(str(shards / 'images-000001.tar'), **options)
    (shards / '._images-000001.tar').write_bytes(b'of macOS')
    assert len(ImageShards(str(shards), **options)) == 11
    some = ImageShards(str(shards), 'images-{000001..000002}.tar', **options)
    assert (len(one), len(some)) == (4, 7)
    assert 'gt_label' not in some.get_data_info(0)
    (shards / 'empty').mkdir()
    for name, error, word in (
        ('no.tar', FileNotFoundError, 'no.tar'),
        ('{0..3}.tar', FileNotFoundError, '0.tar'),
        ('empty', FileNotFoundError, 'make_shards'),
        ('s3://b/a.tar', ValueError, 'not on a disk'),
    ):
        with raises(error, word):
            ImageShards('' if ':' in name else str(shards), name, **options)


@pytest.mark.parametrize('how', ['cut', 'cut at a header', 'empty', 'gzip'])
def test_broken_shards_are_named(shards, how):
    first, *_ = sorted(shards.glob('*.tar'))
    whole = first.read_bytes()
    with tarfile.open(first) as tar:
        last = tar.getmembers()[-1]
    first.write_bytes(
        {
            'cut': whole[: last.offset_data + last.size - 1],
            'cut at a header': whole[: last.offset + 100],
            'empty': b'',
            'gzip': gzip.compress(whole),
        }[how]
    )
    with raises(OSError, first.name, 'not compressed'):
        ImageShards(str(shards), pipeline=LOAD)


def test_index_is_kept_until_the_shard_changes(shards, monkeypatch):
    read = []
    headers = image_shards._read_headers
    monkeypatch.setattr(
        image_shards,
        '_read_headers',
        lambda *a: read.append(a) or headers(*a),
    )

    def count(**options):
        read.clear()
        dataset = ImageShards(str(shards), pipeline=LOAD, **options)
        return len(dataset), len(read)

    assert count() == (11, 0)  # make_shards has made them
    first, second, third = sorted(shards.glob('*.tar'))
    shutil.copy(second, first)
    assert count() == (11, 1) and count() == (11, 0)
    (third.parent / f'{third.name}.index.json').write_bytes(b'damaged')
    assert count() == (11, 1)
    assert count(extensions=['.png']) == (6, 3)
    assert count(extensions=['.png'], with_label=False) == (6, 0)

    def refused(path, text):
        raise PermissionError(f'read-only: {path}')

    monkeypatch.setattr(image_shards, 'write_text', refused)
    with pytest.warns(UserWarning, match=str(shards)):
        assert count() == (11, 3)


def write_tar(path, files):
    with tarfile.open(path, 'w') as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


@pytest.fixture(scope='module')
def image(root):
    return next((root / 'folder/dog').iterdir()).read_bytes()


def test_labels(tmp_path, image):
    path = tmp_path / 'a.tar'
    files = {'a.jpg': image, 'a.cls': b'3\n', 'a.json': b'{"label": 4}'}
    files |= {'dir/b.JSON': b'{"label": 5}', 'dir/b.left.jpg': image}
    files |= {'./.hidden.jpg': image, './c.jpg': image, './c.cls': b'06'}
    write_tar(path, files)
    tar = ImageShards(str(path), pipeline=LOAD)
    names = [info['img_path'][-6:] for info in tar.data_list]
    assert names == ['/a.jpg', 'ft.jpg', '/c.jpg']
    assert tar.get_gt_labels().tolist() == [3, 5, 6]


@pytest.mark.parametrize(
    'files',
    [{}, {'a.json': b'{}'}, {'a.cls': b'cat'}, {'a.json': b'[]'}],
)
def test_no_labels(tmp_path, image, files):
    write_tar(tmp_path / 'a.tar', {'a.jpg': image, **files})
    with raises(ValueError, 'a.jpg', 'KEY.cls', 'with_label=False'):
        ImageShards(str(tmp_path), pipeline=LOAD)
    options = dict(with_label=False, pipeline=LOAD)
    assert len(ImageShards(str(tmp_path), **options)) == 1


def test_none_is_read_beyond_its_end(shards):
    shard = sorted(shards.glob('*.tar'))[0]
    end = shard.stat().st_size
    with raises(OSError, '10 of its 20 bytes', 'cut off'):
        fileio.get(f'tar://{shard}#{end - 10}+20/a')
    with raises(ValueError, 'tar://SHARD#OFFSET+SIZE/NAME'):
        fileio.get('tar://a.tar')
