# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Errors of image sets, loaders and transforms name what is wrong."""

import gzip
import json
import os
import re
import shutil
import sys
import tarfile

import numpy as np
import pytest
from mmengine.dataset import ConcatDataset, RepeatDataset

from mmmoca.datasets import (
    ColorJitter,
    HFImages,
    ImageFolder,
    ImageShards,
    LoadBands,
    LoadImage,
    RandomGrayscale,
    SeededSampler,
    functional,
)
from mmmoca.evaluation.subsets import images_by_class

from ..helpers.images import write_images
from ..helpers.stores import write_arrow, write_shards

LOAD = [LoadImage()]


@pytest.fixture(scope='module')
def place(tmp_path_factory):
    """Write images, some of them damaged, to stores of each kind.

    Tests only read the stores.
    """
    root = tmp_path_factory.mktemp('refused')
    write_images(root / 'images', train=2, val=1, classes=2)
    folder = root / 'images/train'
    (root / 'flat').mkdir()
    (root / 'tables').mkdir()
    (root / 'tables/train-00000-of-00001.parquet').touch()
    shutil.copy(folder / 'class_0/0.jpg', root / 'flat/a.jpg')
    shutil.copy(folder / 'class_0/0.jpg', root / 'flat/a.psd')
    os.mkfifo(root / 'pipe')
    for name, line in dict(half='a.jpg 1\nb.jpg', pipe=f'{root}/pipe').items():
        (root / f'{name}.txt').write_text(line)
    (root / 'empty.txt').touch()
    (root / 'bad').mkdir()
    for index in range(30):
        (root / f'bad/{index:03}.jpg').touch()

    datasets = pytest.importorskip('datasets')
    columns = dict(gap=[0, 1, None, 1], score=[0.5, *[1.0] * 3])
    write_arrow(folder, root / 'arrow', **columns)
    one = datasets.load_from_disk(root / 'arrow')
    pair = one.add_column('other', one['label'])
    pair = pair.cast_column('other', one.features['label'])
    grey = one.cast_column('image', datasets.Image(mode='L'))
    splits = datasets.DatasetDict(train=one, pair=pair, grey=grey)
    splits.save_to_disk(root / 'splits', num_shards=dict.fromkeys(splits, 1))

    def spoil(name, change):
        change(shutil.copytree(root / 'arrow', root / name))

    def state(folder, files):
        path = folder / 'state.json'
        text = json.dumps(json.loads(path.read_text()) | files)
        path.write_text(text)

    spoil('elsewhere', lambda x: state(x, dict(_data_files=[OUTSIDE])))
    spoil('number', lambda x: state(x, dict(_data_files=3)))
    spoil('info', lambda x: (x / 'dataset_info.json').write_text('{'))
    spoil('cut', lambda x: (x / TABLE).write_bytes(b'ARROW1'))
    spoil('fifo', lambda x: (x / TABLE).unlink() or os.mkfifo(x / TABLE))

    write_shards(folder, root / 'shards', 9)
    whole = (root / 'shards/images-000000.tar').read_bytes()
    with tarfile.open(root / 'shards/images-000000.tar') as shard:
        last = shard.getmembers()[-1]
    in_file = whole[: last.offset_data + last.size - 1]
    in_header = whole[: last.offset + 100]
    for name, content in dict(half=in_file, header=in_header).items():
        (root / f'{name}.tar').write_bytes(content)
    (root / 'zipped.tar').write_bytes(gzip.compress(whole))
    np.save(root / 'five.npy', np.zeros((5, 12, 5), np.uint8))
    np.save(root / 'last.npy', np.zeros((9, 12, 5), np.uint8))
    np.save(root / 'nan.npy', np.full((9, 12), np.nan))
    np.save(root / 'complex.npy', np.zeros((9, 12), complex))
    return root


SWAPPED = dict(classes=['class_1', 'class_0'])
OUTSIDE = dict(filename='../arrow/a.arrow')
TABLE = 'data-00000-of-00001.arrow'


def folder(place, name, **options):
    return ImageFolder(f'{place}/{name}', pipeline=LOAD, **options)


def listing(file):
    options = dict(with_label=False, pipeline=LOAD)
    return ImageFolder('/', ann_file=str(file), **options)


def rows(place, name, **options):
    return HFImages(f'{place}/{name}', pipeline=LOAD, **options)


def tar(place, name, **options):
    root = '' if '://' in name else str(place)
    return ImageShards(root, name, with_label=False, pipeline=LOAD, **options)


def bands(place, name, channels=1, axis=None):
    return LoadBands(channels, axis).read(f'{place}/{name}.npy')


def jitter(place, kind, shape, dtype):
    return kind()(dict(img=np.zeros(shape, dtype)))


def unseeded(place, wrap):
    loads = [dict(type='mmmoca.LoadImage')]
    part = ImageFolder(f'{place}/images', with_label=False, pipeline=loads)
    return SeededSampler(wrap(part))


MISSING, BAD = FileNotFoundError, ValueError
REFUSED = [
    (folder, ('nowhere',), {}, MISSING, 'nowhere'),
    (folder, ('nowhere',), dict(with_label=False), MISSING, 'nowhere'),
    (folder, ('flat',), {}, MISSING, 'with_label'),
    (folder, ('flat',), dict(extensions=['.x'], with_label=False),
     MISSING, '.psd'),
    (folder, ('tables',), dict(with_label=False), MISSING, 'save_to_disk'),
    (folder, ('flat',), dict(ann_file='../half.txt'), BAD, 'b.jpg'),
    (folder, ('images/train',), dict(metainfo=dict(classes='abc')),
     BAD, 'has 2'),
    (folder, ('images/train',), dict(metainfo=SWAPPED), BAD, 'class_1'),
    (folder, ('flat',), dict(ann_file='../empty.txt'), MISSING, 'empty.txt'),
    (rows, ('arrow',), dict(metainfo=SWAPPED), BAD, 'class_1'),
    (lambda place: listing(place / 'pipe.txt'), (), {}, OSError, '/pipe'),
    (lambda place: listing(place / 'pipe'), (), {}, OSError, '/pipe'),
    (lambda place: listing('/dev/zero'), (), {}, OSError, '/dev/zero'),
    (folder, ('bad',), dict(with_label=False), OSError, '029.jpg'),
    (rows, ('splits',), dict(data_prefix='val'), MISSING, 'train'),
    (rows, ('beans',), {}, MISSING, 'save_to_disk'),
    (rows, ('splits/train',), dict(image_column='img'), BAD, 'image_column'),
    (rows, ('splits/train',), dict(image_column='label'), OSError, '/label'),
    (rows, ('splits/train',), dict(label_column='gap'), BAD, '#2/image'),
    (rows, ('splits/train',), dict(label_column='score'), BAD, 'score'),
    (rows, ('splits/pair',), {}, BAD, 'label_column'),
    (rows, ('splits/grey',), {}, BAD, 'cast_column'),
    (rows, ('arrow',), dict(ann_file='list.txt'), BAD, 'ann_file'),
    *((rows, (name,), {}, OSError, f'/{name}')
      for name in ('elsewhere', 'number', 'info', 'cut', 'fifo')),
    (tar, ('no.tar',), {}, MISSING, 'no.tar'),
    (tar, ('s3://b/a.tar',), {}, MISSING, 's3://b/a.tar'),
    (tar, ('shards',), dict(ann_file='list.txt'), BAD, 'ann_file'),
    *((tar, (f'{name}.tar',), {}, OSError, f'{name}.tar')
      for name in ('half', 'header', 'zipped')),
    (lambda place: images_by_class(ImageShards(f'{place}/shards')), (), {},
     BAD, 'ImageFolder'),
    *((lambda place, **options: LoadImage(**options), (), option,
       BAD, next(iter(option)))
      for option in (
          dict(max_unreadable=2), dict(background=(255, 255, 256)),
          dict(color_type='unchanged'), dict(imdecode_backend='tifffile'),
          dict(reduce_to=9, color_type='grayscale'))),
    (bands, ('five', 5), {}, BAD, 'five.npy'),
    (bands, ('last', 5, 'first'), {}, BAD, 'channel'),
    (bands, ('last', 0), {}, BAD, 'channels'),
    (bands, ('last', 5, 'middle'), {}, BAD, 'channel_axis'),
    (bands, ('nan',), {}, OSError, 'nodata'),
    (bands, ('complex',), {}, OSError, 'complex.npy'),
    *((jitter, (kind, shape, dtype), {}, BAD, 'color_type')
      for kind in (ColorJitter, RandomGrayscale)
      for shape, dtype in (((8, 8), np.uint8), ((8, 8, 1), np.uint8),
                           ((8, 8, 5), np.uint8), ((8, 8, 3), np.float32))),
    (lambda place: functional.resize(np.zeros((9, 9), np.uint16), (4, 5)),
     (), {}, TypeError, 'LoadBands'),
    (unseeded, (lambda part: ConcatDataset([part]),), {},
     BAD, 'SeedTransforms'),
    (unseeded, (lambda part: RepeatDataset(part, 2),), {},
     BAD, 'SeedTransforms'),
]  # fmt: skip


@pytest.mark.parametrize(
    ('build', 'arguments', 'options', 'error', 'named'), REFUSED
)
def test_refused(place, build, arguments, options, error, named):
    with pytest.raises(error, match=re.escape(named)):
        build(place, *arguments, **options)


@pytest.mark.parametrize(
    'package, build',
    [
        ('datasets', lambda place: rows(place, 'arrow')),
        ('tifffile', lambda place: LoadBands(1).read(place / 'a.tif')),
    ],
)
def test_without_a_package(place, monkeypatch, tmp_path, package, build):
    shutil.copytree(place / 'arrow', tmp_path / 'arrow')
    import tifffile

    tifffile.imwrite(tmp_path / 'a.tif', np.zeros((9, 12), np.uint8))
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises((ImportError, OSError), match=package):
        build(tmp_path)
