# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Bad input is one clear error before the training starts."""

import re
import shutil

import cv2
import numpy as np
import pytest
import tifffile
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image

from mmmoca.datasets.segmentation_checks import (
    check_files,
    check_masks,
    check_segmentation,
)
from mmmoca.engine import launch

from ..cityscapes import CONFIGS, small_config

MASK = 'segmenter_moca-vit-b16_mask_cityscapes-768x768.py'
OWN = 'segmenter_moca-vit-b16_mask_own-masks-512x512.py'
NAME = 'aachen_000001_000019'
TRUTH = f'gtFine/train/aachen/{NAME}_gtFine_labelTrainIds.png'
IMAGE = f'leftImg8bit/train/aachen/{NAME}_leftImg8bit.png'
TRAIN = 'train_dataloader.dataset'
CROP = f'{TRAIN}.pipeline.4.crop_size'
WHOLE_PATCHES = 'multiple'
SIZES = ('model.data_preprocessor.size', 'model.test_cfg.crop_size')


@pytest.fixture
def tree(streets, tmp_path):
    return shutil.copytree(streets, tmp_path / 'cityscapes')


def test_right_data_pass(streets, tmp_path):
    """So does a crop that is not square."""
    options = dict.fromkeys((CROP, *SIZES), (48, 64))
    cfg = small_config(MASK, streets, tmp_path, **options)
    check_segmentation(cfg, ('train', 'val', 'test'))


def refused(tree, work_dir, *parts, **options):
    """The error comes from what the tools call before they build anything."""
    cfg = small_config(MASK, tree, work_dir, **options)
    message = '.*'.join(map(re.escape, parts))
    with pytest.raises(ValueError, match=message) as caught:
        launch.check_files(cfg, 'train', 'val')
    assert '\n' not in str(caught.value)


def test_missing_train_ids(tree, tmp_path):
    for path in tree.glob('gtFine/val/*/*_labelTrainIds.png'):
        path.unlink()
    advice = 'docs/guides/segment.md'
    refused(tree, tmp_path, '2 of 2 files are missing', advice)


def test_raw_ids_under_the_name_of_train_ids(tree, tmp_path):
    raw = TRUTH.replace('labelTrainIds', 'labelIds')
    shutil.copy(tree / raw, tree / TRUTH)
    refused(tree, tmp_path, TRUTH, '[23', '19 classes', 'labelTrainIds')


@pytest.mark.parametrize('line', ['ulm/ulm_000000_000019', '../../../mine'])
def test_split_with_absent_files(tree, tmp_path, line):
    (tree / 'mine.txt').write_text(f'aachen/{NAME}\n{line}\n')
    refused(
        *(tree, tmp_path, f'{line}_leftImg8bit.png', 'mine.txt'),
        **{f'{TRAIN}.ann_file': 'mine.txt'},
    )


def test_truncated_mask(tree, tmp_path):
    content = (tree / TRUTH).read_bytes()
    (tree / TRUTH).write_bytes(content[: len(content) // 2])
    refused(tree, tmp_path, 'cannot read the mask', TRUTH)


def test_mask_of_another_size(tree, tmp_path):
    mask = cv2.imread(str(tree / TRUTH), cv2.IMREAD_UNCHANGED)
    cv2.imwrite(str(tree / TRUTH), mask[:-2])
    refused(tree, tmp_path, '(62, 128)', '(64, 128)')


@pytest.mark.parametrize(
    ('key', 'value', 'message'),
    [
        (
            f'{TRAIN}.seg_map_suffix',
            '_gtFine_labelIds.png',
            'labelTrainIds',
        ),
        ('model.decode_head.num_classes', 5, 'decode_head.num_classes=19'),
        # 7.5 patches round to 8.
        *((key, (64, 60), WHOLE_PATCHES) for key in (CROP, *SIZES)),
    ],
)
def test_configs_that_are_wrong(streets, tmp_path, key, value, message):
    refused(streets, tmp_path, message, **{key: value})


def own_masks(root, masks, suffix='.png', **changed):
    """The config's own-masks training set, with these masks."""
    for folder in ('images', 'masks'):
        (root / folder / 'train').mkdir(parents=True)
    for index, mask in enumerate(masks):
        image = np.zeros((*mask.shape[:2], 3), np.uint8)
        Image.fromarray(image).save(root / f'images/train/{index}.jpg')
        Image.fromarray(mask).save(root / f'masks/train/{index}{suffix}')
    cfg = Config.fromfile(CONFIGS / OWN)
    init_default_scope(cfg.default_scope)
    source = cfg.train_dataloader.dataset
    source.update(data_root=str(root), **changed)
    return DATASETS.build(source)


def mask(*values, dtype=np.uint8):
    return np.resize(np.array(values, dtype), (6, 8))


def test_own_masks_that_are_right(tmp_path):
    for index, found in enumerate(
        (mask(0, 1, 255), mask(0, 1), mask(0, 1, dtype=bool))
    ):
        dataset = own_masks(tmp_path / str(index), [found])
        check_files(dataset)
        check_masks(dataset, 200)


@pytest.mark.parametrize(
    ('found', 'message'),
    [
        (mask(0, 255), '1 in the place of 255'),
        (mask(0, 1, 2), r'label ids \[2\].* use 0 to 1, and 255'),
        # mmseg would read 1 of 257.
        (mask(0, 257, dtype=np.uint16), r'label ids \[257\]'),
        (np.zeros((6, 8, 3), np.uint8), 'has one channel'),
    ],
)
def test_own_masks_that_are_wrong(tmp_path, found, message):
    dataset = own_masks(tmp_path, [mask(0, 255), found])
    with pytest.raises(ValueError, match=message):
        check_masks(dataset, 200)


def test_zero_label_that_is_left_out(tmp_path):
    """As in ADE20K: 0 is no class, and 1 the first one."""
    options = dict(reduce_zero_label=True)
    check_masks(own_masks(tmp_path / 'a', [mask(0, 1, 2)], **options), 1)
    dataset = own_masks(tmp_path / 'b', [mask(0, 3)], **options)
    with pytest.raises(ValueError, match=r'\[3\].* use 1 to 2'):
        check_masks(dataset, 200)


@pytest.mark.parametrize('zero', [True, False])
def test_some_of_the_classes(tmp_path, zero):
    """Ids of classes that are left out are allowed, others are not."""
    some = dict(
        type='ADE20KDataset',
        metainfo=dict(classes=('wall', 'sky')),
        reduce_zero_label=zero,
    )
    last = 149 + zero
    check_masks(own_masks(tmp_path / 'a', [mask(0, 7, last)], **some), 1)
    with pytest.raises(ValueError, match=rf'\[{last + 1}\]'):
        check_masks(own_masks(tmp_path / 'b', [mask(0, last + 1)], **some), 1)


def test_one_class_and_pixels_that_are_left_out(tmp_path):
    metainfo = dict(classes=('road',), palette=[[9, 9, 9]])
    check_masks(own_masks(tmp_path, [mask(0, 255)], metainfo=metainfo), 1)


def test_only_some_masks_are_read(tmp_path):
    masks = [mask(0, 1)] * 10
    masks[5] = mask(9)
    dataset = own_masks(tmp_path, masks)
    check_masks(dataset, 2)  # the first and the last
    with pytest.raises(ValueError, match=r'5\.png'):
        check_masks(dataset, 10)


def test_size_is_that_of_the_loaded_image(tmp_path):
    """Phones store how to turn a photo; tifffile reads what Pillow cannot."""
    dataset = own_masks(tmp_path / 'photo', [mask(0, 1)])
    photo = Image.new('RGB', (6, 8))
    exif = photo.getexif()
    exif[0x0112] = 6
    photo.save(tmp_path / 'photo/images/train/0.jpg', exif=exif)
    check_masks(dataset, 1)
    load = dict(type='mmmoca.LoadBands', channels=13)
    dataset = own_masks(tmp_path / 'bands', [mask(0, 1)], pipeline=[load])
    path = tmp_path / 'bands/images/train/0.jpg'
    for bands, fits in ((np.ones((6, 8, 13)), 1), (np.ones((6, 9, 13)), 0)):
        tifffile.imwrite(path, bands, photometric='minisblack')
        if fits:
            check_masks(dataset, 1)
        else:
            with pytest.raises(ValueError, match=r'\(6, 8\).*\(6, 9\)'):
                check_masks(dataset, 1)


def test_missing_mask_and_empty_folder(tmp_path):
    dataset = own_masks(tmp_path / 'a', [mask(0, 1)], suffix='.bmp')
    with pytest.raises(ValueError, match=r'needs a mask NAME\.png'):
        check_files(dataset)
    options = dict(img_suffix='.jpeg', lazy_init=True)
    dataset = own_masks(tmp_path / 'b', [mask(0, 1)], **options)
    with pytest.raises(ValueError, match=r'no image \*\.jpeg in'):
        check_files(dataset)


@pytest.mark.parametrize('kind', ['ConcatDataset', 'RepeatDataset'])
def test_repeated_and_concatenated_sets(streets, tmp_path, kind):
    cfg = small_config(MASK, streets, tmp_path)
    wrong = dict(cfg.train_dataloader.dataset, seg_map_suffix='_x.png')
    parts = dict(datasets=[cfg.train_dataloader.dataset, wrong])
    if kind == 'RepeatDataset':
        parts = dict(dataset=wrong, times=2)
    cfg.train_dataloader.dataset = dict(type=kind, **parts)
    with pytest.raises(ValueError, match='_x.png'):
        check_segmentation(cfg, ['train'])
