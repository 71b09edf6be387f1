# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Tar files and Hugging Face data sets equal the folder they are made from.

test_integration/test_resume moves a run from one store to another.
"""

import io
import json
import os
import re
import shutil
import tarfile
import tracemalloc
from pathlib import Path
from unittest import mock

import pytest
from mmengine import fileio
from mmpretrain.registry import DATASETS

from mmmoca.apis.embedding import list_digest
from mmmoca.datasets import ImageFolder, ImageShards, shard_index
from mmmoca.datasets.file_extensions import left_out_sentence
from mmmoca.datasets.image_places import image_set_of

from ..helpers.stores import write_arrow, write_shards
from .test_image_folder import write

LOAD = [dict(type='mmmoca.LoadImage', max_unreadable=1)]
# For each store: its folder, the end of the damaged image's path, a file.
STORES = {
    'ImageFolder': ('folder', '/cat/bad.jpg', 'dog/0.v2.JPEG'),
    'ImageShards': ('shards', '+12/cat/00000000_bad.jpg', 'images-000002.tar'),
    'HFImages': ('arrow', '/arrow#0/image', 'state.json'),
}


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    """Write eleven images of two classes, one damaged, to all stores."""
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
    """Return shards that a test may damage."""
    return shutil.copytree(root / 'shards', tmp_path / 'shards')


def build(root, kind, **options):
    folder = str(root / STORES[kind][0])
    settings = dict(type=f'mmmoca.{kind}', data_root=folder, pipeline=LOAD)
    return DATASETS.build(settings | options)


@pytest.mark.parametrize('kind', STORES)
def test_damaged_images_are_named(root, kind):
    dataset = build(root, kind)
    assert dataset.CLASSES == ('cat', 'dog') and len(dataset) == 11
    assert dataset.get_gt_labels().tolist() == [0] * 6 + [1] * 5
    assert dataset[0]['sample_idx'] != 0
    path = dataset.get_data_info(0)['img_path']
    with pytest.raises(OSError, match=re.escape(path)):
        build(root, kind, test_mode=True)[0]
    assert path.endswith(STORES[kind][1])


def test_all_stores_hold_the_same(root):
    """make_shards writes the layout that WebDataset reads."""
    from webdataset import WebDataset

    places = [str(path) for path in sorted((root / 'shards').glob('*.tar'))]
    assert len(places) == 3
    samples = list(WebDataset(places, shardshuffle=False))
    assert len(samples) == 11
    folder, shards, arrow = (build(root, kind) for kind in STORES)
    for i, sample in enumerate(samples):
        file, member, row = (
            store.get_data_info(i) for store in (folder, shards, arrow)
        )
        key, suffix = member['img_path'].rpartition('/')[2].split('.')
        assert sample['__key__'].endswith(key)
        assert sample['cls'] == b'%d' % file['gt_label']
        content = Path(file['img_path']).read_bytes()
        assert sample[suffix] == content
        for info in (member, row):
            assert fileio.get(info['img_path']) == content
            assert info['gt_label'] == file['gt_label']


@pytest.mark.parametrize('kind', STORES)
def test_features_are_kept_until_a_file_changes(root, kind):
    paths = [sample['img_path'] for sample in build(root, kind).data_list]
    digest = list_digest(paths)
    folder, _, file = STORES[kind]
    times = (root / folder / file).stat()
    os.utime(root / folder / file, (0, 0))
    assert digest != list_digest(paths)
    os.utime(root / folder / file, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_file_or_a_pattern(shards, tmp_path):
    options = dict(with_label=False, pipeline=LOAD)
    one = ImageShards(str(shards / 'images-000001.tar'), **options)
    (shards / '._images-000001.tar').write_bytes(b'of macOS')
    assert len(ImageShards(str(shards), **options)) == 11
    some = ImageShards(str(shards), 'images-{000001..000002}.tar', **options)
    assert (len(one), len(some)) == (4, 7)
    # A file with such a name is not a pattern.
    odd = (shards / 'images-000001.tar').rename(tmp_path / '{1,2}.tar')
    assert len(ImageShards(str(odd), **options)) == 4
    assert image_set_of(str(odd.rename(shards / '{1}.jpg'))) is ImageFolder
    assert 'gt_label' not in some.get_data_info(0)


def test_names_of_classes(shards):
    (shards / 'classes.txt').write_text('Katze\nHund\n', 'utf-16')
    assert ImageShards(str(shards)).CLASSES == ('Katze', 'Hund')


def test_index_is_kept_until_the_shard_changes(shards, monkeypatch):
    headers = mock.Mock(side_effect=shard_index._read_headers)
    monkeypatch.setattr(shard_index, '_read_headers', headers)

    def count(**options):
        headers.reset_mock()
        dataset = ImageShards(str(shards), pipeline=LOAD, **options)
        return len(dataset), headers.call_count

    assert count() == (11, 0)  # make_shards wrote the index
    first, second, third = sorted(shards.glob('*.tar'))
    shutil.copy(second, first)
    assert count() == (11, 1) and count() == (11, 0)
    index = third.parent / f'{third.name}.index.json'
    digest, text = json.loads(index.read_text())
    changed = json.dumps([digest, text.replace('dog/', 'cat/', 1)])
    for content in ('damaged', '3', '[' * 50_000, changed):
        index.write_text(content)
        assert count() == (11, 1)
    index.unlink()
    os.mkfifo(index)
    assert count() == (11, 1)
    assert count(extensions=['.png']) == (6, 3)
    refused = mock.Mock(side_effect=PermissionError('read-only'))
    monkeypatch.setattr(shard_index, 'write_text', refused)
    with pytest.warns(UserWarning, match=str(shards)):
        assert count() == (11, 3)


def test_a_forged_index_leads_nowhere(shards):
    """Whoever writes an index can also write its digest."""
    shard = sorted(shards.glob('*.tar'))[0]
    index = Path(f'{shard}.index.json')
    kept = json.loads(json.loads(index.read_text())[1])
    kept['columns'][1][0] = '/../images-000001.tar#0'
    text = json.dumps(kept)
    index.write_text(json.dumps([shard_index._digest(text), text]))
    with pytest.raises(ValueError):
        ImageShards(str(shard))


def add(tar, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def write_tar(path, files):
    with tarfile.open(path, 'w') as tar:
        for name, content in files.items():
            add(tar, name, content)


def test_labels(tmp_path):
    path = tmp_path / 'a.tar'
    files = {'a.jpg': b'', 'a.cls': b'3\n', 'a.json': b'{"label": 4}'}
    files |= {'dir/b.JSON': b'{"label": 5}', 'dir/b.left.jpg': b''}
    files |= {'./.hidden.jpg': b'', './c.jpg': b'', './c.cls': b'06'}
    write_tar(path, files)
    tar = ImageShards(str(path))
    names = [info['img_path'][-6:] for info in tar.data_list]
    assert names == ['/a.jpg', 'ft.jpg', '/c.jpg']
    assert tar.get_gt_labels().tolist() == [3, 5, 6]
    absurd = {'a.cls': b'9' * 5000}, {'a.json': b'[' * 100_000}
    without = {}, {'a.cls': b'cat'}, {'a.json': b'[]'}
    for number, label in enumerate(without + absurd):
        path = tmp_path / f'{number}.tar'
        write_tar(path, {'a.jpg': b'', **label})
        with pytest.raises(ValueError, match='a.jpg'):
            ImageShards(str(path))
        assert len(ImageShards(str(path), with_label=False)) == 1


def test_links_lead_within_the_archive(tmp_path):
    path = tmp_path / 'a.tar'
    links = {
        'd/hard.png': (tarfile.LNKTYPE, './d/0.png'),
        'd/later.png': (tarfile.SYMTYPE, '../blobs/x'),
        'd/chain.png': (tarfile.SYMTYPE, 'later.png'),
        'd/hidden.png': (tarfile.SYMTYPE, '.0.png'),
        'd/out.png': (tarfile.SYMTYPE, '../../d/0.png'),
        'd/absolute.png': (tarfile.SYMTYPE, '/etc/hostname'),
        'd/circle.png': (tarfile.SYMTYPE, 'circle.png'),
        'd/folder.png': (tarfile.SYMTYPE, '../blobs'),
        'd/later.cls': (tarfile.LNKTYPE, 'd/0.cls'),
        'd/.link.png': (tarfile.SYMTYPE, '0.png'),
    }
    with tarfile.open(path, 'w') as tar:
        for name, content in {'d/0.png': b'0', 'd/0.cls': b'7'}.items():
            add(tar, name, content)
        for name, (kind, target) in links.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            tar.addfile(member)
        add(tar, 'd/.0.png', b'hidden')
        add(tar, 'blobs/x', b'blob')
    found = ImageShards(str(path), with_label=False)
    contents = {
        Path(info['img_path']).stem: fileio.get(info['img_path'])
        for info in found.data_list
    }
    expected = {'0': b'0', 'hard': b'0', 'later': b'blob', 'chain': b'blob'}
    assert contents == expected | {'hidden': b'hidden'}
    assert sorted(found.left_out.values()) == [1, 4]  # the blob, and links
    (names, *_, labels) = zip(*shard_index.read_index(str(path), ['.png']))
    assert dict(zip(names, labels))['d/later.png'] == 7


def test_the_last_of_a_name_counts(tmp_path):
    """tar appends changed files and their labels to an archive."""
    path = tmp_path / 'a.tar'
    with tarfile.open(path, 'w') as tar:
        for number, key in enumerate('abab'):
            add(tar, f'{key}.png', b'%d' % number)
            add(tar, f'{key}.cls', b'%d' % number)
    found = ImageShards(str(path))
    contents = [fileio.get(info['img_path']) for info in found.data_list]
    assert contents == [b'2', b'3']
    assert found.get_gt_labels().tolist() == [2, 3]
    assert found.left_out.total() == 2
    assert 'extensions' not in left_out_sentence(found.left_out)


def test_several_images_of_a_sample(tmp_path):
    path = tmp_path / 'a.tar'
    names = [
        f'{i}.{part}.png'
        for i in ('x0', 'x1', 'x2')
        for part in ('Input', 'mask')
    ]
    write_tar(path, dict.fromkeys([*names, '3.mask.png'], b''))
    with pytest.warns(UserWarning, match='input.png'):
        assert len(ImageShards(str(path), with_label=False)) == 7
    chosen = ImageShards(str(path), with_label=False, image_suffix='input.png')
    paths = [info['img_path'] for info in chosen.data_list]
    assert [path[-12:] for path in paths] == names[::2]
    assert chosen.left_out.total() == 4


@pytest.mark.parametrize('name', ['a://b', 'a:///b', 'x#1+2/b', 'a\nb'])
def test_names_like_addresses(tmp_path, name):
    write_tar(tmp_path / 'a.tar', {f'{name}.png': b'content'})
    tar = ImageShards(str(tmp_path / 'a.tar'), with_label=False)
    assert fileio.get(tar.get_data_info(0)['img_path']) == b'content'


def test_none_is_read_beyond_its_end(shards):
    shard = sorted(shards.glob('*.tar'))[0]
    end = shard.stat().st_size
    with pytest.raises(OSError, match=shard.name):
        fileio.get(f'tar://{shard}#{end - 10}+20/a')


def header(name, size, kind=b'0'):
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


def test_an_archive_behind_another(tmp_path):
    """Python reads only the first of two joined archives."""
    for name in 'ab':
        with tarfile.open(tmp_path / f'{name}.tar', 'w') as tar:
            tar.addfile(tarfile.TarInfo(f'{name}.png'))
    both = [(tmp_path / f'{name}.tar').read_bytes() for name in 'ab']
    (tmp_path / 'both.tar').write_bytes(b''.join(both))
    with pytest.raises(OSError, match='both.tar.*tar -A'):
        ImageShards(str(tmp_path / 'both.tar'), with_label=False)


@pytest.mark.parametrize(
    'name, content, kind, named',
    [
        ('b.txt', 2**63, b'0', 'b.txt'),
        ('b.json', 2**40, b'0', 'b.json'),
        ('b.png', -1024, b'0', 'b.png'),
        ('b', 2**61, b'x', 'a.png'),  # of an extended header, after a.png
        ('b.png', b'1', tarfile.GNUTYPE_SPARSE, 'b.png'),
    ],
)
def test_absurd_members_are_named(tmp_path, name, content, kind, named):
    """The reader does not allocate the size that a header claims."""
    parts = [header('a.png', 3), b'png'.ljust(512, b'\0')]
    if isinstance(content, int):
        parts.append(header(name, content, kind))
    else:
        padded = content + bytes(-len(content) % 512)
        parts += [header(name, len(content), kind), padded]
    shard = tmp_path / 'hostile.tar'
    shard.write_bytes(b''.join([*parts, bytes(1024)]))
    tracemalloc.start()
    with pytest.raises(OSError, match=f'hostile.tar.*{named}'):
        ImageShards(str(shard), with_label=False)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()
