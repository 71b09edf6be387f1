# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Frozen dense protocols through the real configs, on small real layouts."""

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner
from mmpretrain.models import VisionTransformer

from mmmoca.engine.config import leave_out_hooks
from mmmoca.engine.runners import ConsoleRunner
from mmmoca.engine.segmentation_check import check_segmentation

from ..helpers.cityscapes import ARCH, CONFIGS, run
from ..helpers.distributed import run_processes

SIZE = (64, 64)
DEPTH = CONFIGS / 'linear-depth_vit-b16_nyu-416x544.py'


@pytest.fixture(scope='module')
def weights(tmp_path_factory):
    """A ViT whose patches tell their colours: layers that add nothing."""
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
    """An image of coloured tiles, (64, 128, 3), and their classes."""
    tiles = rng.integers(0, 5, (4, 8))
    ids = tiles.repeat(16, axis=0).repeat(16, axis=1).astype(np.uint8)
    colours = np.array(
        [(30, 30, 30), (220, 40, 40), (40, 220, 40), (40, 40, 220), (230,) * 3]
    )
    image = colours[ids] + rng.normal(0, 8, (64, 128, 3))
    ids[-4:] = 255
    return image.clip(0, 255).astype(np.uint8), ids


def in_context(data, root, weights, work_dir, **options):
    """The config of a data set, for small images in its own layout."""
    cfg = Config.fromfile(CONFIGS / f'incontext_vit-b16_{data}-512x512.py')
    backbone = cfg.model.backbone
    backbone.update(arch=dict(ARCH), patch_size=8, img_size=SIZE)
    bank = cfg.test_cfg.bank_dataloader
    for part in (bank, cfg.test_dataloader):
        part.update(num_workers=0, persistent_workers=False)
        part.dataset.data_root = str(root)
        for step in part.dataset.pipeline:
            step.update({k: SIZE for k in ('scale', 'crop_size') if k in step})
    bank.batch_size = 3
    defaults = dict(
        work_dir=str(work_dir),
        load_from=str(weights),
        log_level='WARNING',
        experiment_name=work_dir.name,
    )
    small = {'test_cfg.bank_size': 400, 'test_cfg.allow_missing': True}
    cfg.merge_from_dict(defaults | small | options)
    leave_out_hooks(cfg)
    return cfg


def write(folder, name, pixels):
    folder.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(folder / name), pixels)


def ade20k(root):
    """Label 0 is none: what mmseg calls class 0 is written as 1."""
    rng = np.random.default_rng(0)
    for split, count in (('training', 6), ('validation', 2)):
        for index in range(count):
            image, ids = scene(rng)
            write(root / 'images' / split, f'{index}.jpg', image)
            ids = np.where(ids == 255, 0, ids + 1)
            write(root / 'annotations' / split, f'{index}.png', ids)


def voc12aug(root):
    """Label 0 is the background, a class."""
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


def cityscapes(root):
    rng = np.random.default_rng(0)
    for split, count in (('train', 6), ('val', 2)):
        for index in range(count):
            image, ids = scene(rng)
            name = f'aachen_{index:06d}_000019'
            folder = root / 'leftImg8bit' / split / 'aachen'
            write(folder, f'{name}_leftImg8bit.png', image)
            folder = root / 'gtFine' / split / 'aachen'
            write(folder, f'{name}_gtFine_labelTrainIds.png', ids)


@pytest.fixture(scope='module')
def streets(tmp_path_factory):
    root = tmp_path_factory.mktemp('tiles')
    cityscapes(root)
    return root


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


@pytest.mark.parametrize(
    'options, match',
    [
        ({'model.backbone.patch_size': 14}, '14'),
        ({'test_cfg.k': 0}, 'k=0'),
        ({'test_cfg.allow_missing': False}, 'pole'),
        (
            {'model.neck': dict(type='mmpretrain.GlobalAveragePooling')},
            'featmap',
        ),
    ],
)
def test_what_cannot_be_segmented(options, match, streets, weights, tmp_path):
    cfg = in_context('cityscapes', streets, None, tmp_path, **options)
    cfg.load_from = None
    with pytest.raises(ValueError, match=match):
        Runner.from_cfg(cfg).test()


@pytest.mark.parametrize('stage', ['train', 'val'])
def test_foreign_labels_are_named(stage, weights, tmp_path):
    """Before the run in some masks, and in any of them when it is read."""
    cityscapes(tmp_path / 'data')
    cfg = in_context('cityscapes', tmp_path / 'data', weights, tmp_path / 'w')
    path = next((tmp_path / 'data' / 'gtFine' / stage).glob('*/*1_*.png'))
    assert cv2.imwrite(str(path), np.full((64, 128), 19, np.uint8))
    with pytest.raises(ValueError, match='000001_.* 19'):
        ConsoleRunner.from_cfg(cfg).test()
    cfg.experiment_name = f'foreign_{stage}'
    with pytest.raises(ValueError, match='000001_.* 19'):
        Runner.from_cfg(cfg).test()


@pytest.mark.slow
def test_masks_and_memory_must_fit(streets, weights, tmp_path, monkeypatch):
    cfg = in_context('cityscapes', streets, weights, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr('os.sysconf', lambda name: 316)  # 0.1 MB
        with pytest.raises(ValueError, match='bank_size'):
            Runner.from_cfg(cfg).test()
    cfg.experiment_name += '2'
    pipeline = cfg.test_dataloader.dataset.pipeline
    pipeline[1:3] = pipeline[2:0:-1]
    with pytest.raises(ValueError, match='ori_shape'):
        Runner.from_cfg(cfg).test()
    cfg.experiment_name += '3'
    pipeline = cfg.test_cfg.bank_dataloader.dataset.pipeline
    pipeline[2:5] = [pipeline[3], pipeline[4], pipeline[2]]
    with pytest.raises(ValueError, match='img_shape'):
        Runner.from_cfg(cfg).test()
    cfg.experiment_name += '4'
    bank = cfg.test_cfg.bank_dataloader
    # Their images have the same numbers.
    bank.dataset = dict(type='ConcatDataset', datasets=[bank.dataset] * 2)
    with pytest.raises(ValueError, match='ConcatDataset'):
        Runner.from_cfg(cfg).test()


@pytest.mark.slow
@pytest.mark.parametrize(
    'layout, variant',
    [
        (ade20k, 'ade20k-512x512_dinov2'),
        (cityscapes, 'cityscapes-512x512'),
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
    """Rooms that grow darker with their depth."""
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
    backbone = cfg.model.backbone
    backbone.update(arch=dict(ARCH), patch_size=8, img_size=(40, 48))
    backbone.update(frozen_stages=3)
    backbone.init_cfg.checkpoint = f'mmmoca-teacher://{weights}'
    cfg.model.decode_head.in_channels = ARCH['embed_dims']
    cfg.model.data_preprocessor.size = (40, 48)
    cfg.model.test_cfg.update(crop_size=(48, 64), stride=(48, 64))
    for split in ('train', 'val', 'test'):
        loader = cfg[f'{split}_dataloader']
        loader.update(num_workers=0, persistent_workers=False)
        loader.dataset.data_root = str(tmp_path)
        for step in loader.dataset.pipeline:
            if 'crop_size' in step:
                step.crop_size = (40, 48)
    # Eigen's crop is one of 480 x 640 pixels.
    cfg.val_evaluator.crop_type = cfg.test_evaluator.crop_type = None
    cfg.merge_from_dict(
        {
            'work_dir': str(tmp_path / 'work'),
            'log_level': 'WARNING',
            'train_cfg.max_iters': 160,
            'train_cfg.val_interval': 80,
            'default_hooks.checkpoint.interval': 160,
            'param_scheduler.0.end': 10,
            'optim_wrapper.optimizer.lr': 0.05,
        }
    )
    leave_out_hooks(cfg)
    check_segmentation(cfg, ['train', 'val'])
    runner = Runner.from_cfg(cfg)
    runner.train()
    error = runner.message_hub.get_scalar('val/abs_rel').data[0]
    constant = np.median(depths['train'])
    expected = np.mean(np.abs(1 - constant / np.array(depths['test'])))
    assert error[-1] < 0.5 * expected
