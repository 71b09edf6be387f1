# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
import os
import shutil
import tracemalloc
from pathlib import Path

import cv2
import pytest

from mmmoca.datasets import ImageFolder, LoadImage, image_folder
from mmmoca.datasets.image_places import image_set_of
from mmmoca.datasets.image_set import ImageSet
from mmmoca.messages import DataWarning

from ..helpers.photos import photo

LOAD = [LoadImage()]


def write(path, seed=0):
    """Write an image in the format of the name's lower-case extension."""
    path.parent.mkdir(parents=True, exist_ok=True)
    img = photo(seed, height=40, width=50)
    path.write_bytes(cv2.imencode(path.suffix.lower(), img)[1].tobytes())


@pytest.fixture
def classes(tmp_path):
    places = 'cat/a.JPEG', 'cat/deep/er/c.webp', 'cat/d.tiff', 'dog/b.JPG'
    for i, name in enumerate((*places, 'dog/e.PNG', 'dog/f.bmp')):
        write(tmp_path / name, seed=i)
    write(tmp_path / 'dog/.hidden.jpg')
    write(tmp_path / 'dog/.cache/hidden.jpg')
    write(tmp_path / '.git/hidden.jpg')
    (tmp_path / 'dog/notes.txt').write_text('no image')
    return tmp_path


def names(dataset, root):
    paths = [info['img_path'] for info in dataset.data_list]
    return [str(Path(path).relative_to(root)) for path in paths]


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
    for i, results in enumerate(dataset):
        assert results['img'].shape == (40, 50, 3)
        assert results['sample_idx'] == i
    for indices, labels in ((2, [0, 0]), (-1, [1]), ([5, 0], [1, 0])):
        part = ImageFolder(str(classes), indices=indices)
        assert part.get_gt_labels().tolist() == labels
        part = dataset.get_subset(indices)
        assert [info['gt_label'] for info in part.data_list] == labels


def test_without_labels_any_depth_counts(classes, monkeypatch):
    monkeypatch.setenv('HOME', str(classes.parent))
    write(classes / 'top.png')
    dataset = ImageFolder('~', classes.name, with_label=False)
    assert len(dataset) == 7
    assert 'top.png' in names(dataset, classes)
    assert 'gt_label' not in dataset.get_data_info(0)


@pytest.mark.parametrize('with_label', [True, False])
def test_links_are_followed_but_not_in_circles(tmp_path, with_label):
    root = tmp_path / 'root'
    write(root / 'a/x.jpg')
    write(tmp_path / 'elsewhere/deep/y.jpg')
    for place, target in {
        'root/a/nowhere.jpg': 'nowhere_else.jpg',
        'root/a/up': '..',
        'root/a/z.jpg': 'x.jpg',
        'root/a/loop.png': 'loop.png',
        'root/a/loop': 'loop',
        'root/loop': 'loop',
        'root/b': '../elsewhere',
        'elsewhere/deep/top': '..',
        'elsewhere/up': '..',
    }.items():
        (tmp_path / place).symlink_to(target)
    dataset = ImageFolder(str(root), with_label=with_label)
    assert image_set_of(str(root)) is ImageFolder
    # A broken link is only reported when it is read.
    bad = ['a/loop.png', 'a/nowhere.jpg']
    assert names(dataset, root) == [*bad, 'a/x.jpg', 'a/z.jpg', 'b/deep/y.jpg']


def test_folders_without_a_number(tmp_path, monkeypatch):
    """Some network drives give each folder the inode 0."""
    for name in 'abc':
        write(tmp_path / name / 'x.jpg')
    stat = os.stat

    def unnumbered(*args, **kwargs):
        status = [*stat(*args, **kwargs)]
        return os.stat_result([status[0], 0, *status[2:]])

    monkeypatch.setattr(os, 'stat', unnumbered)
    assert len(ImageFolder(str(tmp_path), with_label=False)) == 3


def test_list_of_images(classes):
    lines = 'dog/b.JPG 4\n\ncat/a.JPEG 2\n'
    (classes / 'list.txt').write_text(lines, 'utf-16')
    dataset = ImageFolder(str(classes), ann_file='list.txt')
    assert names(dataset, classes) == ['dog/b.JPG', 'cat/a.JPEG']
    assert dataset.get_gt_labels().tolist() == [4, 2]


def test_check_reads_one_good_file_and_not_too_many_bad_ones(
    classes, monkeypatch
):
    load, paths = LoadImage.load, set()
    monkeypatch.setattr(
        LoadImage, 'load', lambda *args: paths.add(args[2]) or load(*args)
    )
    ImageFolder(str(classes), pipeline=LOAD)
    assert len(paths) == 1
    (classes / 'bad').mkdir()
    for i in range(60):
        (classes / f'bad/{i:03}.jpg').touch()
    bad = dict(data_prefix='bad', with_label=False, pipeline=LOAD)
    with pytest.raises(OSError, match='059.jpg'):
        ImageFolder(str(classes), **bad)
    assert len(paths) == 21
    write(classes / 'bad/059.jpg')
    assert len(ImageFolder(str(classes), **bad)) == 60


@pytest.mark.slow
def test_an_image_takes_some_dozen_bytes(monkeypatch):
    def files(folder, *_):
        for i in reversed(range(200)):
            yield f'{folder}/{Path(folder).name}_{i:06}.JPEG'

    folders = [f'n{i:08}' for i in range(100)]
    monkeypatch.setattr(image_folder, 'visible_folders', lambda *_: folders)
    monkeypatch.setattr(image_folder, 'visible_files', files)
    monkeypatch.setattr(ImageSet, '_check_readable', lambda self: None)
    tracemalloc.start()
    try:
        dataset = ImageFolder('/', pipeline=[])
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(dataset) == 20_000
    # The path takes 35 bytes, the dict 45, its offset 8; the buffer grows.
    assert kept < 110 * len(dataset) and peak < 130 * len(dataset)


def test_what_is_left_out_is_counted(classes):
    for name in ('cat/a.psd', 'dog/b.psd', 'dog/none', 'beside.png'):
        write(classes / 'cat/d.tiff')
        shutil.copy(classes / 'cat/d.tiff', classes / name)
    os.mkfifo(classes / 'dog/pipe.png')
    (classes / 'cat/device.jpg').symlink_to('/dev/zero')
    for name in ('e.jfif', 'f.jpe', 'g.AVIF', 'h.jp2'):
        shutil.copy(classes / 'cat/a.JPEG', classes / 'cat' / name)
    with pytest.warns(DataWarning, match='2 of .psd') as said:
        dataset = ImageFolder(str(classes), pipeline=LOAD)
    assert said[0].filename == __file__
    assert len(dataset) == 10
    assert dataset.left_out == {
        'of .psd': 2,
        'of .txt': 1,
        'without an extension': 1,
        'beside the class folders': 1,
        'that are not regular files': 2,
    }
    for all_files in ('', ['']):
        assert len(ImageFolder(str(classes), extensions=all_files)) == 14
