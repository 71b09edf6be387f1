# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import os
from pathlib import Path

import cv2
import numpy as np
import pytest
from mmcv.transforms import LoadImageFromFile
from mmpretrain.registry import DATASETS
from PIL import Image

from mmmoca.datasets import ImageFolder, LoadImage

from ..errors import raises
from .photos import photo

LOAD = [LoadImage()]


def write(path, seed=0):
    """Write an image, in the format of the name's lower-case extension."""
    path.parent.mkdir(parents=True, exist_ok=True)
    img = photo(seed, height=40, width=50)
    path.write_bytes(cv2.imencode(path.suffix.lower(), img)[1].tobytes())


@pytest.fixture
def classes(tmp_path):
    for i, name in enumerate(
        (
            'dog/b.JPG',
            'cat/a.JPEG',
            'cat/deep/er/c.webp',
            'cat/d.tiff',
            'dog/e.PNG',
            'dog/f.bmp',
        )
    ):
        write(tmp_path / name, seed=i)
    write(tmp_path / 'dog/.hidden.jpg')
    write(tmp_path / 'dog/.cache/hidden.jpg')
    write(tmp_path / '.git/hidden.jpg')
    (tmp_path / 'dog/notes.txt').write_text('no image')
    return tmp_path


def names(dataset, root):
    infos = [dataset.get_data_info(i) for i in range(len(dataset))]
    return [str(Path(info['img_path']).relative_to(root)) for info in infos]


def test_class_folders(classes):
    dataset = ImageFolder(str(classes), pipeline=LOAD)
    assert dataset.CLASSES == ('cat', 'dog')
    assert names(dataset, classes) == [
        'cat/a.JPEG',
        'cat/d.tiff',
        'cat/deep/er/c.webp',
        'dog/b.JPG',
        'dog/e.PNG',
        'dog/f.bmp',
    ]
    assert dataset.get_gt_labels().tolist() == [0, 0, 0, 1, 1, 1]
    for i in range(len(dataset)):
        results = dataset[i]
        assert results['img'].shape == (40, 50, 3)
        assert results['sample_idx'] == i


def test_without_labels_any_depth_counts(classes):
    write(classes / 'top.png')
    cfg = dict(
        type='mmmoca.ImageFolder',
        data_root=str(classes.parent),
        data_prefix=classes.name,
        with_label=False,
    )
    dataset = DATASETS.build(cfg)
    assert len(dataset) == 7
    assert 'top.png' in names(dataset, classes)
    assert 'gt_label' not in dataset.get_data_info(0)
    with pytest.raises(ValueError, match='data_prefix must be .*img_path'):
        DATASETS.build(cfg | dict(data_prefix={}))


@pytest.mark.parametrize('with_label', [True, False])
def test_links_are_followed_but_not_in_circles(tmp_path, with_label):
    root = tmp_path / 'root'
    write(root / 'a/x.jpg')
    write(tmp_path / 'elsewhere/deep/y.jpg')
    for place, target in {
        'root/a/itself.jpg': 'itself.jpg',
        'root/a/nowhere.jpg': 'nowhere_else.jpg',
        'root/a/up': '..',
        'root/a/z.jpg': 'x.jpg',
        'root/b': '../elsewhere',
        'elsewhere/deep/top': '..',
    }.items():
        (tmp_path / place).symlink_to(target)
    os.mkfifo(root / 'a/pipe.jpg')
    dataset = ImageFolder(str(root), with_label=with_label)
    assert names(dataset, root) == [
        'a/itself.jpg',  # neither can be read, which is said when it is tried
        'a/nowhere.jpg',
        'a/x.jpg',
        'a/z.jpg',
        'b/deep/y.jpg',
    ]


def test_metainfo_of_other_classes(classes):
    with raises(ValueError, 'names 3 classes', str(classes), '2 folders'):
        ImageFolder(str(classes), metainfo=dict(classes=('a', 'b', 'c')))


def test_first_frame_of_an_animation(tmp_path):
    red, *more = (Image.new('RGB', (8, 8), c) for c in ('red', 'blue'))
    red.save(tmp_path / 'a.gif', save_all=True, append_images=more)
    dataset = ImageFolder(str(tmp_path), with_label=False, pipeline=LOAD)
    assert dataset[0]['img'][0, 0].tolist() == [0, 0, 255]


def test_list_of_images(classes):
    (classes / 'list.txt').write_text('dog/b.JPG 4\ncat/a.JPEG 2\n')
    dataset = ImageFolder(str(classes), ann_file='list.txt')
    assert names(dataset, classes) == ['dog/b.JPG', 'cat/a.JPEG']
    assert dataset.get_gt_labels().tolist() == [4, 2]
    for text, error, parts in (
        ('', FileNotFoundError, ('list.txt', 'one path a line')),
        ('a.jpg 1\nb.jpg\n', ValueError, ('b.jpg', 'with_label=False')),
    ):
        (classes / 'list.txt').write_text(text)
        with raises(error, *parts):
            ImageFolder(str(classes), ann_file='list.txt')


def test_home_is_understood(classes, monkeypatch):
    monkeypatch.setenv('HOME', str(classes.parent))
    assert len(ImageFolder(f'~/{classes.name}')) == 6


def test_no_image(tmp_path):
    root = str(tmp_path / 'nowhere')
    with raises(FileNotFoundError, 'no folder', root, '.png', 'data_root'):
        ImageFolder(root)
    (tmp_path / 'a').mkdir()
    (tmp_path / 'a' / 'b.txt').write_text('no image')
    parts = 'no image in', str(tmp_path), '.jpg', '.webp'
    with raises(FileNotFoundError, *parts, '<data_root>/<class>/<image>'):
        ImageFolder(str(tmp_path))
    with raises(FileNotFoundError, *parts, 'data_root'):
        ImageFolder(str(tmp_path), with_label=False)
    with raises(FileNotFoundError, '(accepted extensions: .gif)'):
        ImageFolder(str(tmp_path), with_label=False, extensions=['.gif'])
    write(tmp_path / 'flat.jpg')
    with raises(FileNotFoundError, str(tmp_path), 'write with_label=False'):
        ImageFolder(str(tmp_path))


def test_check_reads_one_good_file_and_not_too_many_bad_ones(
    classes, monkeypatch
):
    read, paths = LoadImage.read, []
    monkeypatch.setattr(
        LoadImage,
        'read',
        lambda self, path: paths.append(path) or read(self, path),
    )
    ImageFolder(str(classes), pipeline=LOAD)
    assert len(set(paths)) == 1
    paths.clear()
    for i in range(600):
        (classes / f'{i:03}.jpg').write_bytes(b'')
    lines = '\n'.join(f'{i:03}.jpg' for i in range(600))
    (classes / 'list.txt').write_text(lines)
    cfg = dict(ann_file='list.txt', with_label=False)
    parts = 'none of the 500 files tried of 600', str(classes), '.jpeg'
    with raises(OSError, *parts, 'Replace', '599.jpg'):
        ImageFolder(str(classes), **cfg)
    assert len(set(paths)) == 500
    write(classes / '599.jpg')
    assert len(ImageFolder(str(classes), **cfg)) == 600


class LoadArray(LoadImageFromFile):
    """One of the user's, which leaves out what it cannot read."""

    def transform(self, results):
        try:
            return results | dict(img=np.load(results['img_path']))
        except EOFError:
            return None


def test_check_uses_a_loader_of_the_users(tmp_path):
    cfg = dict(with_label=False, extensions=['.npy'])
    # LoadImage knows neither the files nor the backend.
    cfg['pipeline'] = [LoadArray(imdecode_backend='turbojpeg')]
    (tmp_path / '0.npy').touch()
    with raises(OSError, 'none of the 1 files', '0.npy'):
        ImageFolder(str(tmp_path), **cfg)
    np.save(tmp_path / '1.npy', photo())
    assert len(ImageFolder(str(tmp_path), **cfg)) == 2
