# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Pretraining and segmentation of images with bands, by command line."""

import re
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from mmcv import imwrite
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mmmoca.checkpoints import read_checkpoint
from mmmoca.engine.config import read_run
from mmmoca.engine.config_check import check_config
from mmmoca.engine.settings import settings_of
from tests.helpers.tools import load_tool, run_tool

CONFIGS = Path(__file__).parents[1] / 'configs'
TWO_LAYERS = 'model.backbone.arch.num_layers=2'
SMALL = [
    'train_dataloader.num_workers=0',
    'train_dataloader.persistent_workers=False',
    'default_hooks.logger.interval=1',
]
PRETRAIN = [
    *SMALL,
    'model.backbone.tap_layer=1',
    'model.codebook.num_words=32',
    'epochs=1',
    'batch_size=8',
    'val_dataloader.num_workers=0',
    'val_dataloader.persistent_workers=False',
    'val_cfg.bank_dataloader.num_workers=0',
    'train_cfg.val_interval=1',
]


SETTINGS = dict(data_root='mine', knn_root='knn', classes='a,b', arch='s')
ABSENT = {'grey', 'solarize'}
SETTINGS |= dict(img_size=96, crop_size=96, scale='96,96', flip=0.3)
SETTINGS['reduce_zero_label'] = True


@pytest.mark.parametrize('config', sorted(CONFIGS.glob('*.py')))
@pytest.mark.slow
def test_each_setting_is_one(config):
    """All settings work, except those of transforms that the configs lack."""
    for name in settings_of(Config.fromfile(config)).keys() - ABSENT:
        read_run(config, [f'{name}={SETTINGS.get(name, 1)}'])


def test_size_of_bands():
    config = CONFIGS / 'moca_vit-tiny_fields.py'
    cfg = read_run(config, ['img_size=96'])
    crop = cfg.train_dataloader.dataset.pipeline[2].transforms[1][0]
    bank = cfg.val_cfg.bank_dataloader.dataset.pipeline
    sizes = crop.scale, bank[1].scale, bank[2].crop_size
    assert sizes == (96, 96, 96) and cfg.model.backbone.img_size == 96


def pretrain(config, root, work_dir, *options):
    """Train for three steps; return what was printed."""
    line = CONFIGS / config, '--work-dir', work_dir, '--cfg-options'
    data = f'data_root={root}/train', 'train_dataloader.dataset.data_prefix='
    return run_tool('tools/train.py', *line, *PRETRAIN, *data, *options)


@pytest.fixture(scope='module')
def fields(tmp_path_factory):
    """24 training and 12 validation images of 13 bands."""
    out = tmp_path_factory.mktemp('bands') / 'fields'
    tool = 'projects/multispectral/make_fields.py'
    run_tool(tool, out, '--train', 24, '--val', 12)
    return out


@pytest.fixture(scope='module')
def work_dir(fields):
    """The work dir of a network that was pretrained on the fields."""
    work_dir = fields.parent / 'pretrained'
    options = TWO_LAYERS, f'knn_root={fields}'
    log = pretrain('moca_vit-tiny_fields.py', fields, work_dir, *options)
    losses = re.findall(r' loss: ([\d.]+)', log)
    assert len(losses) == 3 and np.isfinite(np.array(losses, float)).all()
    scalars = next(work_dir.glob('*/vis_data/scalars.json')).read_text()
    assert '"knn/top1_k20"' in scalars
    return work_dir


@pytest.fixture(scope='module')
def backbone(work_dir):
    path = work_dir / 'backbone.pth'
    convert = 'tools/model_converters/convert.py'
    run_tool(convert, work_dir / 'epoch_1.pth', path)
    return path


def test_fields_of_a_kind_are_alike():
    """Vegetation is bright in the near infrared, water dark."""
    tool = load_tool('../projects/multispectral/make_fields')
    for label, kind in enumerate(tool.CLASSES):
        ratios = []
        for seed in range(5):
            bands, mask = tool.draw(label, np.random.default_rng(seed), 48)
            mean = bands[mask == label].mean(axis=0)
            ratios.append(mean[7] / mean[3])
        low, high = {
            'soil': (1, 2), 'urban': (1, 2), 'water': (0, 1)
        }.get(kind, (2, 8))  # fmt: skip
        assert low < np.median(ratios) < high, kind


@pytest.mark.slow
def test_an_overview_without_labels(work_dir, tmp_path):
    line = [work_dir / 'moca_vit-tiny_fields.py', work_dir / 'epoch_1.pth']
    line += ['--out', tmp_path / 'out.png', '--images', 2, '--num-workers', 0]
    line += ['--cfg-options', 'knn_root=']
    run_tool('tools/visualization/overview.py', *line)
    assert (tmp_path / 'out.png').is_file()


def segment(fields, work_dir, checkpoint, *options, code=0):
    """Train a segmentor for two steps, test it; return what was printed."""
    return run_tool(
        'tools/train.py',
        CONFIGS / 'segmenter_vit-tiny_mask_fields.py',
        '--work-dir',
        work_dir,
        '--cfg-options',
        *SMALL,
        TWO_LAYERS,
        f'model.backbone.init_cfg.checkpoint={checkpoint}',
        'train_cfg.max_epochs=1',
        'train_cfg.val_interval=1',
        'train_dataloader.batch_size=12',
        'val_dataloader.num_workers=0',
        'val_dataloader.persistent_workers=False',
        f'train_dataloader.dataset.data_root={fields}',
        f'val_dataloader.dataset.data_root={fields}',
        *options,
        code=code,
    )


@pytest.mark.slow
def test_a_segmentor_goes_on_with_the_bands(
    fields, work_dir, backbone, tmp_path
):
    freeze = 'model.backbone.frozen_stages=2'
    log = segment(fields, tmp_path, backbone, freeze)
    assert 'names of the model match' in log
    assert 'mIoU' in log
    (loss,) = re.findall(r'\[1\]\[2/2\].* loss: ([\d.]+)', log)
    assert np.isfinite(float(loss))
    # The frozen weights are still those of the teacher.
    name = 'patch_embed.projection.weight'
    (file,) = tmp_path.glob('epoch_*.pth')
    trained = read_checkpoint(str(file))['state_dict'][f'backbone.{name}']
    run = read_checkpoint(str(work_dir / 'epoch_1.pth'))['state_dict']
    assert trained.shape == (128, 13, 8, 8)
    assert torch.equal(trained, run[f'teacher.{name}'])


@pytest.mark.slow
def test_a_segmentor_of_other_channels(fields, backbone, tmp_path):
    channels = 'model.backbone.in_channels=3'
    printed = segment(fields, tmp_path, backbone, channels, code=2)
    assert 'in_channels' in printed
    mean = 'model.data_preprocessor.mean=[0,0,0]'
    printed = segment(fields, tmp_path, backbone, mean, code=2)
    assert 'one number for each channel' in printed


@pytest.mark.slow
def test_grey_images_of_16_bits(fields, tmp_path):
    for path in fields.glob('train/*/*.tif'):
        out = tmp_path / path.relative_to(fields).with_suffix('.png')
        imwrite(tifffile.imread(path)[..., 7], out)
    views = 'train_dataloader.dataset.pipeline.2.transforms'
    log = pretrain(
        'moca_vit-b16_grey16.py',
        tmp_path,
        tmp_path / 'work_dir',
        'model.backbone.arch=deit-tiny',
        'model.backbone.img_size=48',
        'model.backbone.patch_size=16',
        'model.codebook.border=1',
        'model.neck.embed_dims=64',
        'model.neck.num_heads=2',
        f'{views}.0.0.scale=48',
        f'{views}.1.0.scale=48',
    )
    assert len(re.findall(r' loss: [\d.]+', log)) == 3
    (file,) = (tmp_path / 'work_dir').glob('epoch_*.pth')
    state = read_checkpoint(str(file))['state_dict']
    assert state['teacher.patch_embed.projection.weight'].shape[1] == 1


@pytest.mark.slow
@pytest.mark.parametrize('path', [*CONFIGS.glob('*.py')], ids=lambda p: p.stem)
def test_configs_build(path):
    cfg = Config.fromfile(path)
    check_config(cfg)
    init_default_scope(cfg.default_scope)
    model = MODELS.build(cfg.model)
    channels = model.backbone.patch_embed.projection.in_channels
    assert channels == model.data_preprocessor.mean.numel() == cfg.channels
    # The config that a run writes to its work dir can be read again.
    Config.fromstring(cfg.pretty_text, '.py')
