# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Bad input gives one clear error before the training starts."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tifffile
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image

import mmmoca
from mmmoca.datasets.look import look_at
from mmmoca.datasets.look.masks import MaskFacts, mask_facts
from mmmoca.engine.config_check import check_config
from mmmoca.engine.runners import ConsoleRunner
from mmmoca.engine.segmentation_check import (
    _check_written,
    check_files,
    check_segmentation,
)

from ..helpers.cityscapes import CONFIGS, MASK, small_config

OWN = 'segmenter_moca-vit-b16_mask_own-masks-512x512.py'
TRAIN, VAL = 'train_dataloader.dataset', 'val_dataloader.dataset'
CROP = f'{TRAIN}.pipeline.4.crop_size'
SIZES = ('model.data_preprocessor.size', 'model.test_cfg.crop_size')


WEIGHTS = 'model.decode_head.loss_decode.class_weight'
PYRAMID = dict(type='mmmoca.ViTFeaturePyramid', in_channels=9, patch_size=4)


def test_right_data_pass(streets, tmp_path):
    """Right data pass, and so does a crop that is not square."""
    options = dict.fromkeys((CROP, *SIZES), (48, 64))
    cfg = small_config(MASK, streets, tmp_path, **options)
    check(cfg, 'train', 'val', 'test')


def check(cfg, *stages):
    """Check as the tools do before a run, without a runner."""
    check_config(cfg)
    check_segmentation(cfg, stages)
    for stage in stages:
        dataset = DATASETS.build(cfg[f'{stage}_dataloader'].dataset)
        raise_wrong(look_at({stage: dataset}).wrong)


def check_masks(dataset, most=200):
    raise_wrong(mask_facts(dataset, most).wrong)


def raise_wrong(wrong):
    if wrong:
        raise ValueError(wrong[0])


def test_masks_alone_are_told_what_they_need():
    facts = MaskFacts((), wanted='an image NAME.jpg')
    facts.left_out['masks without an image'] = 2
    assert facts.wanted in facts.sentences()[0]


ONE = dict(metainfo=dict(classes=('road',), palette=[[9, 9, 9]]))
SPLIT = '../val/frankfurt/frankfurt_000000_000019'


def in_wrappers(cfg):
    right = cfg.train_dataloader.dataset
    parts = [right, dict(right, seg_map_suffix='_x.png')]
    both = dict(type='ConcatDataset', datasets=parts)
    repeated = dict(type='RepeatDataset', dataset=both, times=2)
    cfg.train_dataloader.dataset = repeated


def leads_out(cfg):
    """List an existing image that is outside of the training folder."""
    split = Path(cfg.work_dir) / 'mine.txt'
    split.write_text(f'aachen/aachen_000001_000019\n{SPLIT}\n')
    cfg.train_dataloader.dataset.ann_file = str(split)


@pytest.mark.parametrize(
    ('options', 'named'),
    [
        ({f'{VAL}.seg_map_suffix': '_gtFine_labelIds.png'}, 'labelIds.png'),
        ({'model.decode_head.num_classes': 5}, 'decode_head.num_classes'),
        ({f'{TRAIN}.ignore_index': 254}, 'seg_pad_val'),
        # 7.5 patches are rounded to 8.
        ({CROP: (64, 60)}, 'RandomCrop'),
        ({SIZES[0]: (64, 60)}, 'data_preprocessor'),
        # a softmax of one class
        (
            {f'{s}.{k}': v for s in (TRAIN, VAL) for k, v in ONE.items()}
            | {'model.decode_head.num_classes': 1},
            'decode_head',
        ),
        ({'model.neck': PYRAMID}, 'model.neck.patch_size'),
        ({WEIGHTS: [1.0] * 19}, 'avg_non_ignore=False'),
        ({f'{TRAIN}.reduce_zero_label': True}, 'reduce_zero_label'),
        ({f'{SIZES[0][:-5]}.test_cfg.size_divisor': 10}, 'size_divisor'),
        (leads_out, f'{SPLIT}_leftImg8bit.png'),
        (in_wrappers, '_x.png'),
    ],
)
def test_configs_that_are_wrong(streets, tmp_path, options, named):
    """The check of the config, or the look at its data, names the mistake."""
    changes = options if isinstance(options, dict) else {}
    cfg = small_config(MASK, streets, tmp_path, **changes)
    if callable(options):
        options(cfg)
    with pytest.raises(ValueError, match=re.escape(named)):
        check(cfg, 'train', 'val')


def own_masks(root, masks, suffix='.png', **changed):
    """Return the training set of the own-masks config with these masks."""
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


# As in ADE20K, 0 is not a class, and 1 is the first class.
NO_ZERO = dict(reduce_zero_label=True)
# Ids of left-out classes are allowed, others are not.
SOME = NO_ZERO | dict(
    type='ADE20KDataset', metainfo=dict(classes=('wall', 'sky'))
)


@pytest.mark.parametrize(
    ('found', 'options'),
    [
        (mask(0, 1, 255), {}),
        (mask(0, 1, dtype=bool), {}),
        (mask(0, 1, dtype=np.uint16), {}),
        (mask(0, 1, 2), NO_ZERO),
        (mask(0, 255), NO_ZERO),
        (mask(0, 7, 150), SOME),
        (mask(0, 255), ONE),
    ],
)
def test_own_masks_that_are_right(tmp_path, found, options):
    dataset = own_masks(tmp_path, [found], **options)
    check_files(dataset)
    check_masks(dataset, 200)


@pytest.mark.parametrize(
    ('found', 'options', 'message'),
    [
        (mask(0, 255), {}, '255'),
        (mask(0, 1, 2), {}, r'2 .*1\.png'),
        # mmseg would read 257 as 1.
        (mask(0, 257, dtype=np.uint16), {}, ' 257'),
        (np.zeros((6, 8, 3), np.uint8), {}, r'1\.png'),
        (mask(0, 3), NO_ZERO, r'3 .*1\.png'),
        (mask(0, 151), SOME, '151'),
    ],
)
def test_own_masks_that_are_wrong(tmp_path, found, options, message):
    dataset = own_masks(tmp_path, [mask(0, 255), found], **options)
    with pytest.raises(ValueError, match=message):
        check_masks(dataset, 200)


def test_predictions_of_one_name(tmp_path):
    """mmsegmentation would overwrite one prediction with the other."""
    dataset = own_masks(tmp_path, [mask(0, 1)])
    cfg = Config(dict(test_evaluator=dict(type='IoUMetric')))
    _check_written(cfg, 'test', dataset)
    for kind in ('images', 'masks'):
        shutil.copytree(
            tmp_path / kind / 'train', tmp_path / kind / 'train' / 'more'
        )
    cfg.test_evaluator.output_dir = 'out'
    options = dict(_scope_='mmseg', data_root=str(tmp_path))
    dataset = DATASETS.build(
        Config.fromfile(CONFIGS / OWN).train_dataloader.dataset | options
    )
    with pytest.raises(ValueError, match='output_dir'):
        _check_written(cfg, 'test', dataset)


def test_only_some_masks_are_read(tmp_path):
    dataset = own_masks(tmp_path, [mask(0, 1)] * 10)
    path = tmp_path / 'masks/train/5.png'
    path.write_bytes(path.read_bytes()[:40])
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
            with pytest.raises(ValueError, match='0.png'):
                check_masks(dataset, 1)


def test_missing_mask_and_empty_folder(tmp_path):
    dataset = own_masks(tmp_path / 'a', [mask(0, 1)], suffix='.bmp')
    with pytest.raises(ValueError, match=r'\.png'):
        check_files(dataset)
    options = dict(img_suffix='.jpeg', lazy_init=True)
    dataset = own_masks(tmp_path / 'b', [mask(0, 1)], **options)
    with pytest.raises(ValueError, match=r'\.jpeg'):
        check_files(dataset)
    # A look at a config builds the whole data set.
    options = dict(data_root=str(tmp_path / 'b'), classes=['a', 'b'])
    (tmp_path / 'b/images/train/0.jpg').rename(tmp_path / 'b/0.jpg')
    with pytest.raises(ValueError, match=r'no image \*\.jpg'):
        mmmoca.look(CONFIGS / OWN, options)


def test_what_suffixes_leave_out_is_said(tmp_path):
    dataset = own_masks(tmp_path, [mask(0, 1)] * 5)
    images, masks = tmp_path / 'images/train', tmp_path / 'masks/train'
    (images / '1.jpg').rename(images / '1.JPG')
    (images / '2.jpg').rename(images / '2.webp')
    (images / 'notes').touch()
    (masks / '9.png').touch()
    (masks / 'notes.txt').touch()  # as Cityscapes has other files there
    facts = mask_facts(dataset)
    left_out = facts.left_out
    assert dataset.img_suffix in facts.sentences()[0]
    assert left_out['of .JPG'] == left_out['of .webp'] == 1
    assert left_out.total() == 6  # three masks have no image
    dataset.ann_file = str(tmp_path / 'some.txt')  # leaves out on purpose
    (tmp_path / 'some.txt').write_text('0\n')
    assert not mask_facts(dataset).left_out


@pytest.mark.parametrize(
    ('orientation', 'shape', 'turned'),
    [(3, (6, 8), True), (2, (6, 8), True), (6, (8, 8), True), (6, (6, 8), 0)],
)
def test_images_that_are_turned_within_their_size(
    tmp_path, orientation, shape, turned
):
    """The size does not show that only the image is turned."""
    dataset = own_masks(tmp_path, [np.ones(shape, np.uint8)])
    pixels = np.arange(shape[0] * shape[1], dtype=np.uint8).reshape(shape)
    photo = Image.fromarray(pixels if turned else pixels.T.copy())
    exif = Image.Exif()
    exif[0x0112] = orientation
    photo.save(tmp_path / 'images/train/0.jpg', exif=exif)
    if turned:
        with pytest.raises(ValueError, match='0.jpg'):
            check_masks(dataset, 1)
        load = dict(type='LoadImageFromFile')
        load['color_type'] = 'color_ignore_orientation'
        dataset.pipeline = Compose([load])
    check_masks(dataset, 1)


@pytest.mark.parametrize('is_deep', [True, False])
def test_images_that_mmcv_would_make_black_or_stop_at(tmp_path, is_deep):
    """Training takes another image instead; a test names the bad one."""
    own_masks(tmp_path, [mask(0, 1)] * 2)
    path = tmp_path / 'images/train/0.jpg'
    path.write_bytes(b'damaged')
    if is_deep:
        Image.new('I;16', (8, 6), 200).save(path, 'PNG')
    cfg = Config.fromfile(CONFIGS / OWN)
    source = dict(data_root=str(tmp_path))
    for stage in ('train', 'val'):
        loader = cfg[f'{stage}_dataloader']
        loader.update(num_workers=0, persistent_workers=False)
        prefix = cfg.train_dataloader.dataset.data_prefix
        loader.dataset.update(source, data_prefix=prefix)
        dataset = ConsoleRunner.build_dataloader(loader, seed=0).dataset
        if stage == 'train':
            assert dataset[0]['data_samples'].img_path.endswith('1.jpg')
        else:
            with pytest.raises(OSError, match=r'0\.jpg'):
                dataset[0]
    assert '0.jpg' in look_at(dict(val=dataset)).wrong[0]
