# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The drawn sets: textures, digits, and shapes in COCO's format."""

import json
import resource
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from sklearn.datasets import load_digits

from ..helpers.tools import contents, load_tool, run_tool


def test_a_set_is_made_once_and_its_like_is_kept(tmp_path):
    tool = load_tool('drawn_sets/_drawn_set')
    out = tmp_path / 'deep' / 'set'

    def draw(seed=0, fail=False):
        with tool.drawn_set(out, dict(train=1, val=1, seed=seed)) as root:
            if root is None:
                return False
            (root / 'image').write_text('drawn')
            if fail:
                raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        draw(fail=True)
    assert not list(out.parent.iterdir())
    out.mkdir()
    assert draw()  # into an empty folder
    assert json.loads((out / 'meta.json').read_text())['seed'] == 0
    times = {p: p.stat().st_mtime_ns for p in out.rglob('*')}
    assert not draw()
    with pytest.raises(FileExistsError, match=out.name):
        draw(seed=1)
    assert times == {p: p.stat().st_mtime_ns for p in out.rglob('*')}


def test_images_that_cannot_be_written_are_an_error(tmp_path):
    make = load_tool('drawn_sets/make_digits').make_digits
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match='large'):
            make(tmp_path / 'set', limit=4, size=96)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_textures(tmp_path):
    tool = load_tool('drawn_sets/make_textures')
    counts = {'train': 125, 'val': 30}
    out, masked = tmp_path / 'deep' / 'set', tmp_path / 'masked'
    assert tool.make_textures(out, **counts, size=32, seed=3)
    assert tool.make_textures(masked, **counts, size=32, seed=3, masks=True)
    files, again = contents(out), contents(masked)
    names = {name for name in files if name.endswith('.jpg')}
    assert all(files[name] == again[name] for name in names)
    assert len(again) == len(files) + len(names)
    for name in names:
        file = masked / 'masks' / name.replace('.jpg', '.png')
        mask = cv2.imread(str(file), cv2.IMREAD_UNCHANGED)
        label = tool.CLASSES.index(file.parent.name) + 1
        assert mask.shape == (32, 32) and {*np.unique(mask)} == {0, label}
    other = tmp_path / 'other'
    assert tool.make_textures(other, train=12, val=12, size=32, seed=4)
    first = f'train/{tool.CLASSES[0]}/00000.jpg'
    assert contents(other)[first] != files[first]
    # No image is drawn twice.
    assert len(files) == len(set(files.values())) == 125 + 30 + 1
    for split, count in counts.items():
        number = Counter(p.parent.name for p in out.glob(f'{split}/*/*'))
        assert number.keys() == set(tool.CLASSES)
        assert number.total() == count
        assert max(number.values()) - min(number.values()) == 1


@pytest.mark.slow
def test_digits(tmp_path):
    out = tmp_path / 'deep' / 'digits'
    run_tool('tools/drawn_sets/make_digits.py', out, '--size', 8)
    digits = load_digits()
    files = sorted(out.glob('*/*/*.png'), key=lambda path: path.stem)
    assert len(files) == 1797
    for number in (0, 1, 2, 1796):
        path = files[number]
        split = 'val' if number % 4 == 0 else 'train'
        assert path.parts[-3:-1] == (split, str(digits.target[number]))
        image = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
        np.testing.assert_allclose(
            image, digits.images[number] * 255 / 16, atol=0.5
        )
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.slow
def test_shapes(tmp_path):
    """Annotations fit the images, and a seed always gives the same bytes."""
    make = load_tool('drawn_sets/make_shapes_coco').make_shapes
    out = tmp_path / 'set'
    again, other = tmp_path / 'again', tmp_path / 'other'
    for folder, seed in ((out, 3), (again, 3), (other, 4)):
        assert make(folder, train=30, val=10, size=96, seed=seed)
    assert contents(out) == contents(again) != contents(other)
    kinds, empty = set(), 0
    for split, count in (('train', 30), ('val', 10)):
        coco = COCO(out / 'annotations' / f'{split}.json')
        assert len(coco.imgs) == len(list((out / split).iterdir())) == count
        names = ' '.join(c['name'] for c in coco.cats.values())
        assert names == 'circle cross square triangle'
        for image in coco.imgs.values():
            pixels = cv2.imread(str(out / split / image['file_name']))
            size = (image['height'], image['width'])
            assert pixels.shape == (*size, 3) and max(size) == 96
            annotations = coco.imgToAnns[image['id']]
            empty += not annotations
            classes = np.zeros(size, int)
            for annotation in annotations:
                shown = annotation['segmentation']
                kinds.add(
                    'polygon'
                    if isinstance(shown, list)
                    else (type(shown['counts']), annotation['iscrowd'])
                )
                mask = coco.annToMask(annotation)
                assert mask.sum() == annotation['area'] > 0
                rle = coco_mask.encode(np.asfortranarray(mask))
                box = coco_mask.toBbox(rle).tolist()
                assert box == annotation['bbox']
                classes += mask * annotation['category_id']
                if not annotation['iscrowd']:
                    # one colour except for noise and JPEG
                    core = cv2.erode(mask, np.ones((5, 5), np.uint8)) > 0
                    assert (pixels[core].std(0) < 25).all()
            name = Path(image['file_name']).stem
            path = out / 'masks' / split / f'{name}.png'
            assert (cv2.imread(str(path), -1) == classes).all()
    assert kinds == {'polygon', (str, 0), (list, 0), (list, 1)}
    assert empty == 4
