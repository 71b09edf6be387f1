# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Frozen dense protocols with the real configs, on small real layouts."""

from functools import partial

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner
from mmpretrain.models import VisionTransformer

from mmmoca.engine.runners import ConsoleRunner
from mmmoca.engine.segmentation_check import check_segmentation

from ..helpers.cityscapes import ARCH, CONFIGS, run, shrink, write_tree
from ..helpers.distributed import run_processes

SIZE = (64, 64)
DEPTH = CONFIGS / 'linear-depth_vit-b16_nyu-416x544.py'


@pytest.fixture(scope='module')
def weights(tmp_path_factory):
    """Return the file of a ViT that encodes colours; layers add nothing."""
    torch.manual_seed(0)
    vit = VisionTransformer(dict(ARCH), img_size=64, patch_size=8)
    state = {f'backbone.{k}': v for k, v in vit.state_dict().items()}
    for name, value in state.items():
        if 'layers' in name and 'ln' not in name or 'pos_embed' in name:
            value.zero_()
    path = tmp_path_factory.mktemp('weights') / 'vit.pth'
    torch.save(dict(state_dict=state), path)
    return path


def scene(rng):
    """Draw an image of coloured tiles, (64, 128, 3), and their classes."""
    tiles = rng.integers(0, 5, (4, 8))
    ids = tiles.repeat(16, axis=0).repeat(16, axis=1).astype(np.uint8)
    colours = np.array(
        [(30, 30, 30), (220, 40, 40), (40, 220, 40), (40, 40, 220), (230,) * 3]
    )
    image = colours[ids] + rng.normal(0, 8, (64, 128, 3))
    ids[-4:] = 255
    return image.clip(0, 255).astype(np.uint8), ids


def in_context(data, root, weights, work_dir, **options):
    """Return a data set's config, for small images in the set's own layout."""
    cfg = Config.fromfile(CONFIGS / f'incontext_vit-b16_{data}-512x512.py')
    cfg.test_cfg.bank_dataloader.batch_size = 3
    small = {'test_cfg.bank_size': 400, 'test_cfg.allow_missing': True}
    small |= dict(load_from=str(weights), experiment_name=work_dir.name)
    steps = dict(scale=SIZE)
    return shrink(cfg, root, work_dir, SIZE, steps, **small | options)


def write(folder, name, pixels):
    folder.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(folder / name), pixels)


def ade20k(root):
    """Write a set in which 0 means no class, and 1 is the first class."""
    rng = np.random.default_rng(0)
    for split, count in (('training', 6), ('validation', 2)):
        for index in range(count):
            image, ids = scene(rng)
            write(root / 'images' / split, f'{index}.jpg', image)
            ids = np.where(ids == 255, 0, ids + 1)
            write(root / 'annotations' / split, f'{index}.png', ids)


def voc12aug(root):
    """Write a set in which 0 is the background, which is a class."""
    rng = np.random.default_rng(0)
    lists = root / 'ImageSets' / 'Segmentation'
    lists.mkdir(parents=True)
    for split, count in (('trainaug', 6), ('val', 2)):
        names = [f'{split}_{i}' for i in range(count)]
        (lists / f'{split}.txt').write_text('\n'.join(names))
        masks = 'SegmentationClassAug' if count > 2 else 'SegmentationClass'
        for name in names:
            image, ids = scene(rng)
            write(root / 'JPEGImages', f'{name}.jpg', image)
            write(root / masks, f'{name}.png', ids)


def miou_of(cfg):
    check_segmentation(cfg, ['test'])
    return Runner.from_cfg(cfg).test()


@pytest.mark.parametrize('layout', [ade20k, voc12aug])
def test_in_context_segmentation(layout, weights, tmp_path):
    root = tmp_path / 'data'
    layout(root)
    cfg = in_context(layout.__name__, root, weights, tmp_path / 'work')
    metrics = miou_of(cfg)
    assert metrics['bank_patches'] == 6 * 2 * 33
    assert metrics['aAcc'] > 85 and metrics['mIoU'] > 75


def _rank(root, weights, folder):
    return miou_of(in_context('cityscapes', root, weights, folder / 'two'))


@pytest.mark.processes
def test_in_context_on_two_processes(streets, weights, tmp_path):
    alone = in_context('cityscapes', streets, weights, tmp_path / 'one')
    expected = miou_of(alone)
    for found in run_processes(_rank, 2, streets, weights, tmp_path):
        assert found == expected


def of_no_memory(cfg, monkeypatch):
    monkeypatch.setattr('os.sysconf', lambda name: 316)  # 0.1 MB


def masks_before_the_size(cfg, _):
    pipeline = cfg.test_dataloader.dataset.pipeline
    pipeline[1:3] = pipeline[2:0:-1]


def masks_of_the_whole(cfg, _):
    pipeline = cfg.test_cfg.bank_dataloader.dataset.pipeline
    pipeline[2:5] = [pipeline[3], pipeline[4], pipeline[2]]


def of_several_sets(cfg, _):
    """Join two data sets, whose images have the same indices."""
    bank = cfg.test_cfg.bank_dataloader
    bank.dataset = dict(type='ConcatDataset', datasets=[bank.dataset] * 2)


POOLING = dict(type='mmpretrain.GlobalAveragePooling')


@pytest.mark.parametrize(
    'change, match',
    [
        ({'model.backbone.patch_size': 14}, '14'),
        ({'test_cfg.k': 0}, 'k=0'),
        ({'test_cfg.allow_missing': False}, 'pole'),
        ({'model.neck': POOLING}, 'featmap'),
        (of_no_memory, 'bank_size'),
        (masks_before_the_size, 'ori_shape'),
        (masks_of_the_whole, 'img_shape'),
        (of_several_sets, 'ConcatDataset'),
    ],
)
def test_what_cannot_be_segmented(
    change, match, streets, tmp_path, monkeypatch
):
    options = change if isinstance(change, dict) else {}
    cfg = in_context('cityscapes', streets, None, tmp_path, **options)
    cfg.load_from = None
    if callable(change):
        change(cfg, monkeypatch)
    with pytest.raises(ValueError, match=match):
        Runner.from_cfg(cfg).test()


@pytest.mark.parametrize('stage', ['train', 'val'])
def test_foreign_labels_are_named(stage, weights, tmp_path):
    """The look before a run names foreign labels, and so does the loader."""
    write_tree(tmp_path / 'data', train=2, val=2)
    cfg = in_context('cityscapes', tmp_path / 'data', weights, tmp_path / 'w')
    masks = tmp_path / 'data' / 'gtFine' / stage
    path = next(masks.glob('*/*1_*TrainIds.png'))
    assert cv2.imwrite(str(path), np.full((64, 128), 19, np.uint8))
    with pytest.raises(ValueError, match='000001_.* 19'):
        ConsoleRunner.from_cfg(cfg).test()
    cfg.experiment_name = f'foreign_{stage}'
    with pytest.raises(ValueError, match='000001_.* 19'):
        Runner.from_cfg(cfg).test()


@pytest.mark.slow
@pytest.mark.parametrize(
    'layout, variant',
    [
        (ade20k, 'ade20k-512x512_dinov2'),
        (partial(write_tree, train=3, val=1), 'cityscapes-512x512'),
    ],
)
def test_linear_segmentation(layout, variant, weights, tmp_path):
    root = tmp_path / 'data'
    layout(root)
    init = dict(type='Pretrained', checkpoint=str(weights), prefix='backbone.')
    runner = run(
        f'linear_vit-b16_{variant}.py',
        root,
        tmp_path / 'work',
        **{
            'model.backbone.init_cfg': init,
            'train_cfg': dict(
                type='IterBasedTrainLoop', max_iters=30, val_interval=15
            ),
            'default_hooks.checkpoint.interval': 30,
            'optim_wrapper.optimizer.lr': 0.02,
            'param_scheduler.0.end': 2,
            'param_scheduler.1.begin': 2,
        },
    )
    backbone = runner.model.backbone.state_dict()
    saved = torch.load(weights)['state_dict']
    for name, value in backbone.items():
        assert torch.equal(value, saved[f'backbone.{name}']), name
    accuracy = runner.message_hub.get_scalar('val/aAcc').data[0]
    assert accuracy.max() > 85


@pytest.mark.slow
def test_depth(weights, tmp_path):
    """The rooms are darker where they are deeper."""
    rng = np.random.default_rng(0)
    y, depths = np.mgrid[:48, :64][0], dict(train=[], test=[])
    for split, count in (('train', 6), ('test', 2)):
        for index in range(count):
            depth = 1 + 6 * rng.uniform(0.5, 1) * y / 48 + rng.uniform(0, 1)
            image = np.repeat(255 - 30 * depth[..., None], 3, axis=2)
            image = image.astype(np.uint8)
            depths[split].append(depth[2:].copy())
            depth[:2] = 0  # not measured
            name = f'kitchen_{index:04d}'
            write(tmp_path / 'images' / split, f'{name}.jpg', image)
            millimetres = (1000 * depth).astype(np.uint16)
            folder = tmp_path / 'annotations' / split
            write(folder, f'{name}.png', millimetres)
    cfg = Config.fromfile(DEPTH)
    cfg.model.backbone.frozen_stages = 3
    cfg.model.backbone.init_cfg.checkpoint = f'mmmoca-teacher://{weights}'
    cfg.model.decode_head.in_channels = ARCH['embed_dims']
    cfg.model.data_preprocessor.size = crop = (40, 48)
    cfg.model.test_cfg.update(crop_size=(48, 64), stride=(48, 64))
    # Eigen's crop is made for images of 480 x 640 pixels.
    cfg.val_evaluator.crop_type = cfg.test_evaluator.crop_type = None
    options = {
        'train_cfg.max_iters': 160,
        'train_cfg.val_interval': 80,
        'default_hooks.checkpoint.interval': 160,
        'param_scheduler.0.end': 10,
        'optim_wrapper.optimizer.lr': 0.05,
    }
    shrink(cfg, tmp_path, tmp_path / 'work', crop, **options)
    check_segmentation(cfg, ['train', 'val'])
    runner = Runner.from_cfg(cfg)
    runner.train()
    error = runner.message_hub.get_scalar('val/abs_rel').data[0]
    constant = np.median(depths['train'])
    expected = np.mean(np.abs(1 - constant / np.array(depths['test'])))
    assert error[-1] < 0.5 * expected
