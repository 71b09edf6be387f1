# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The report on data states the known facts of drawn, faulty sets."""

import io
from collections import Counter

import numpy as np
import pytest
import tifffile
from mmengine.dataset import BaseDataset
from PIL import Image

import mmmoca
from mmmoca.datasets import ImageFolder
from mmmoca.datasets.look import look_at
from mmmoca.datasets.look.images import image_facts
from mmmoca.datasets.look.masks import mask_facts

from ..helpers.runs import OWN_CONFIG

OTHERS = 'broken', 'notes'
RNG = np.random.default_rng(0)


def draw(height=40, width=60):
    small = RNG.integers(0, 255, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height))


@pytest.fixture(scope='module')
def photos(tmp_path_factory):
    """Write eight images (four odd ones) to class folders, and other files."""
    root = tmp_path_factory.mktemp('photos')
    for name in ('a', 'b', 'c/@eaDir', '__MACOSX', 'run'):
        (root / name).mkdir(parents=True)
    for index in range(4):
        draw().save(root / 'a' / f'{index}.png')
    content = (root / 'a/0.png').read_bytes()
    (root / 'b/equal.png').write_bytes(content)
    (root / 'b/broken.png').write_bytes(content[:120])  # also cut short
    exif = Image.Exif()
    exif[0x112] = 6
    turned = io.BytesIO()
    draw(60, 600).save(turned, 'JPEG', exif=exif)
    (root / 'b/turned.jpg').write_bytes(turned.getvalue())
    clear = draw().convert('L').convert('RGBA')
    clear.putalpha(0)
    clear.save(root / 'b/clear.webp', lossless=True, exact=True)
    for name in ('c/@eaDir/x.png', '__MACOSX/x.png', 'run/last_checkpoint'):
        (root / name).write_bytes(content)
    draw().save(root / 'run/epoch_1.png')
    (root / 'a/notes.txt').touch()
    return root


def folder(root, pipeline=(dict(type='mmmoca.LoadImage'),), **options):
    return ImageFolder(str(root), pipeline=list(pipeline), **options)


def test_facts_of_images(photos):
    dataset = folder(photos)
    facts = image_facts(dataset)
    assert facts.number == facts.headers == 8
    assert dict(facts.classes) == dict(a=4, b=4, c=0)
    # Three folders of machines: one in a class, two beside the classes.
    of_run = 'in run, which a run has made'
    left_out = {'in @eaDir': 1, 'in __MACOSX': 1, of_run: 2, 'of .txt': 1}
    assert dataset.left_out == left_out
    assert facts.left_out == left_out
    again = 'equal to another', 'equal to one of another class'
    odd = Counter(('turned by EXIF', 'with transparency', *again))
    assert facts.odd == odd
    assert facts.sizes.count((40, 60)) == 7
    assert (600, 60) in facts.sizes  # as displayed
    assert facts.counts() == {
        'unreadable': 1,
        'longer than 8 : 1': 1,
        **facts.odd,
    }
    white = dict(type='mmmoca.LoadImage', background=(255, 255, 255))
    kept = image_facts(folder(photos, [white])).odd
    assert odd - kept == Counter(['with transparency'])
    assert facts.grey == 1
    (problem,) = facts.unreadable.values()
    assert 'broken.png' in problem and not facts.wrong  # it is skipped
    # A file that is cut short is decoded in any case.
    assert image_facts(dataset, 0).unreadable == facts.unreadable
    readable = [p for p in photos.glob('[ab]/*') if p.stem not in OTHERS]
    arrays = [np.asarray(Image.open(p).convert('RGB')) for p in readable]
    means = [a.mean((0, 1)) for a in arrays]
    squares = [(a.astype(float) ** 2).mean((0, 1)) for a in arrays]
    expected = np.mean(means, axis=0)
    deviation = np.sqrt(np.mean(squares, axis=0) - expected**2)
    loaded = [x for x in readable if x.suffix != '.jpg']
    assert len(loaded) == facts.decoded - 1 == 6
    np.testing.assert_allclose(facts.mean, expected, atol=1)
    np.testing.assert_allclose(facts.std, deviation, atol=1)


def test_evaluation_skips_nothing(photos):
    dataset = folder(photos, test_mode=True, with_label=False)
    look = look_at(dict(val=dataset))
    (line,) = look.wrong
    assert 'broken.png' in line and 'cannot read' not in line
    # Apart from folders of runs and of the system, all that is left out is
    # named.
    assert dataset.left_out.total() == 5


def test_what_stands_out_is_said_once(photos, tmp_path):
    crop = dict(type='mmmoca.RandomResizedCrop', scale=50)
    steps = [dict(type='mmmoca.LoadImage'), crop]
    sets = dict(train=folder(photos, steps), val=folder(photos))
    look = look_at(sets, ((0.5, 0.5, 0.5), (0.2, 0.2, 0.2)))
    for phrase, number in (
        ('unreadable', 2),
        ('transparency', 2),
        ('smaller than crops of 50', 1),
        ('images are also in the training set', 1),
        ('data_preprocessor', 2),
        ('the class c', 2),
        ('EXIF', 0),  # which is not odd
    ):
        assert sum(phrase in line for line in look.odd) == number, phrase
    text, page = str(look), look._repr_html_()
    for form in (text, page):
        assert '600 x 60' in form and 'turned by EXIF' in form
    assert page.startswith('<pre>')
    table = text.partition('\n- ')[0].split('\n')
    assert max(map(len, table)) <= 100
    assert all(f'- {line}' in text for line in look.odd)  # can be searched


def test_doors_without_a_run(photos):
    """``mmmoca.look`` needs no run; it accepts folders, lists and configs."""
    look = mmmoca.look(photos / 'a')
    assert [line[:2] for line in look.sections[0].rows][0] == ['images', '4']
    (line,) = look.odd
    assert '1 of .txt' in line and not look.wrong
    (images,) = mmmoca.look([photos / 'a', str(photos / 'a')]).sections
    table = dict(images.rows)
    assert (table['images'], table['equal to another']) == ('8', '4 of 8')
    for wrong in ([], [photos, OWN_CONFIG]):
        with pytest.raises(ValueError, match=r'empty|alone'):
            mmmoca.look(wrong)
    with pytest.raises(FileNotFoundError, match='no_such_place'):
        mmmoca.look('no_such_place')
    packed = photos / 'run/a.zip'
    packed.touch()
    with pytest.raises(ValueError, match=packed.name):
        mmmoca.look(packed)
    (images,) = mmmoca.look(OWN_CONFIG, dict(data_root=photos)).sections
    assert images.columns[1:] == ['train']  # the only one without labels
    own = dict(data_root=photos)
    one = mmmoca.look(OWN_CONFIG, own | {'look.pixels': 1})
    assert str(one) == str(mmmoca.look(OWN_CONFIG, own, pixels=1))
    for place, options in ((OWN_CONFIG, own), (photos, ())):
        looks = [mmmoca.look(place, options, n) for n in (1, None)]
        assert len({str(look) for look in looks}) == 2  # the mean differs
    for place in (photos, [photos, photos]):
        with pytest.raises(ValueError, match='look.pixels'):
            mmmoca.look(place, {'look.pixels': 1})


def test_images_and_classes_that_an_evaluation_knows(photos, tmp_path):
    """An example is a list that counts its classes from 1."""
    names = tmp_path / 'names.txt'
    names.write_text('a/1.png 1\nb/turned.jpg 2\n')
    bank = ImageFolder(str(photos), pipeline=[dict(type='mmmoca.LoadImage')])
    asked = folder(photos, ann_file=str(names))
    sets = {'val': asked, 'val bank': bank, 'test bank': bank}
    shared, missing, unnamed = look_at(sets).odd[-3:]
    assert '2 images' in shared
    assert missing.startswith('val') and missing.endswith('2')
    assert 'the labels 0' in unnamed
    named = dict(metainfo=dict(classes=['a', 'b', 'c']))
    sets['val'] = folder(photos, ann_file=str(names), **named)
    assert not any('the labels 0' in line for line in look_at(sets).odd)
    for classes, number in ((2, 1), (3, 0), (None, 0)):  # labels 1 and 2
        look = look_at({'val': asked}, num_classes=classes)
        assert len(look.wrong) == number


@pytest.mark.parametrize('names', ['abd', 'abc'])
def test_sets_of_other_classes(photos, names):
    asked = folder(photos, metainfo=dict(classes=[*names]))
    wrong = look_at(dict(train=folder(photos), val=asked)).wrong
    assert len(wrong) == (names != 'abc')


def test_some_of_many_unreadable_images_are_named(tmp_path):
    draw().save(tmp_path / 'a.png')
    for number in range(8):
        (tmp_path / f'{number}.png').touch()
    look = look_at(dict(train=folder(tmp_path, with_label=False)))
    (line,) = (line for line in look.odd if 'unreadable' in line)
    assert line.count('.png') == 5 and '3 more' in line


def test_masks_among_the_images(tmp_path):
    """Label ids are small numbers, or 255 for none."""
    for number in range(8):
        draw().save(tmp_path / f'{number}.jpg')
        labels = np.full((40, 60), (0, 1, 255)[number % 3], np.uint8)
        Image.fromarray(labels).save(tmp_path / f'{number}.png')
    assert image_facts(folder(tmp_path, with_label=False)).like_masks == 8
    look = look_at(dict(train=folder(tmp_path, with_label=False)))
    assert any('8 of 16 decoded' in line for line in look.odd)


def test_an_image_of_another_size_is_said_once(tmp_path):
    """COCO entries may state a wrong size, and labels may be lists."""
    draw().save(tmp_path / 'a.png')
    info = dict(img_path=str(tmp_path / 'a.png'), gt_label=[0, 1])
    dataset = BaseDataset(
        metainfo=dict(classes=('a', 'b')),
        pipeline=[dict(type='mmmoca.LoadImage')],
        lazy_init=True,
    )
    dataset.load_data_list = lambda: [dict(info, height=60, width=40)]
    dataset.full_init()
    look = look_at(dict(train=dataset))
    assert len(look.wrong) == 1 and 'a.png' in look.wrong[0]
    assert not look.odd


def masks_of(root, *files, classes=('sky', 'road', 'car'), **options):
    """Return a data set like those of mmsegmentation."""
    infos = []
    for number, file in enumerate(files):
        draw(4, 5).save(root / f'{number}.png')
        names = root / f'{number}.png', root / file
        keys = 'img_path', 'seg_map_path'
        infos.append(dict(zip(keys, map(str, names))))
    dataset = BaseDataset(lazy_init=True, metainfo=dict(classes=classes))
    dataset.load_data_list = lambda: infos
    dataset.data_prefix = dict(seg_map_path=str(root))
    dataset.ignore_index, dataset.reduce_zero_label = 255, False
    dataset.img_suffix = dataset.seg_map_suffix = '.png'
    dataset.ann_file = 'names.txt'
    vars(dataset).update(options)
    dataset.full_init()
    return dataset


def test_facts_of_masks(tmp_path):
    """The facts include shares of pixels by class, palettes and formats."""
    first = np.uint8([[0, 0, 0, 1, 255]] * 4)
    image = Image.fromarray(first, 'P')
    image.putpalette([0, 0, 0, 255, 0, 0] + [0] * 762)
    image.save(tmp_path / 'a.png')
    image.putpalette([0, 0, 0, 0, 255, 0] + [0] * 762)
    image.save(tmp_path / 'b.png')
    Image.fromarray(first * 0).save(tmp_path / 'c.jpg')
    dataset = masks_of(tmp_path, 'a.png', 'b.png', 'c.jpg')
    facts = mask_facts(dataset)
    assert facts.pixels == Counter({0: 44, 1: 8, -1: 8})
    assert facts.masks == Counter({0: 3, 1: 2, -1: 2})
    assert len(facts.palettes) == 2 and not facts.wrong
    words = ('JPEG', 'palettes', 'car')
    for word, line in zip(words, facts.sentences(), strict=True):
        assert word in line
    look = look_at(dict(train=dataset))
    row = next(row for row in look.sections[1].rows if row[0] == '1 road')
    assert row[1:] == ['13.33%', '2 of 3']


def test_labels_as_they_are_loaded(tmp_path):
    """mmsegmentation may shift labels by one, or replace them."""
    Image.fromarray(np.uint8([[0, 1, 1, 3, 255]] * 4)).save(tmp_path / 'a.png')
    Image.fromarray(np.uint8([[255] * 5] * 4)).save(tmp_path / 'b.png')
    facts = mask_facts(masks_of(tmp_path, 'a.png', reduce_zero_label=True))
    assert facts.pixels == Counter({0: 8, 2: 4, -1: 8})
    facts = mask_facts(masks_of(tmp_path, 'a.png', 'b.png'))
    assert len(facts.wrong) == 1 and 'a.png' in facts.wrong[0]
    # Only labels that are classes count.
    assert facts.pixels == Counter({0: 4, 1: 8, -1: 24})
    (line,) = mask_facts(masks_of(tmp_path, 'b.png')).sentences()
    assert 'left out' in line


def test_bands_that_a_file_stores_as_pages(tmp_path):
    """tifffile reads pages as bands; several arrays in a file are not read."""
    bands = np.random.default_rng(0).integers(0, 999, (20, 24, 5))
    tifffile.imwrite(tmp_path / 'a.tif', bands.astype(np.uint16))
    with tifffile.TiffWriter(tmp_path / 'b.tif') as file:
        for _ in range(2):
            file.write(bands.astype(np.uint16))
    np.save(tmp_path / 'c.npy', bands.transpose(2, 0, 1).astype(np.uint16))
    load = dict(type='mmmoca.LoadBands', channels=5)
    options = dict(with_label=False, extensions='', pipeline=[load])
    for pixels in (0, 3):
        facts = image_facts(ImageFolder(str(tmp_path), **options), pixels)
        assert facts.sizes == [(20, 24)] * 3 and not facts.unreadable
        assert facts.odd == {'of several pages or frames': 1}
        assert facts.examples == dict.fromkeys(facts.odd, f'{tmp_path}/b.tif')


def test_grey_images_are_odd_only_as_colours(tmp_path):
    for mode in ('L', 'RGB'):
        draw().convert('L').convert(mode).save(tmp_path / f'{mode}.png')
    pipeline = [dict(type='mmmoca.LoadImage')]
    images = ImageFolder(str(tmp_path), with_label=False, pipeline=pipeline)
    assert image_facts(images).grey == 1
