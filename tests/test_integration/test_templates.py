# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Each template runs with all of its settings, given on a command line."""

import inspect

import numpy as np
import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from PIL import Image

from mmmoca.checkpoints import run_record
from mmmoca.engine.config import read_run
from mmmoca.engine.templates import SETTINGS

from ..helpers.images import CONFIGS, write_images
from ..helpers.tools import load_tool, run_tool

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def place(tmp_path_factory):
    """Write labelled images, masks and boxes."""
    root = tmp_path_factory.mktemp('templates')
    write_images(root / 'photos', train=5, val=3, classes=3)
    rng = np.random.default_rng(0)
    for split, index in (('train', 0), ('train', 1), ('val', 0)):
        pixels = rng.integers(0, 256, (96, 128, 3), np.uint8)
        for kind, end, x in (
            ('images', '.png', pixels),
            ('masks', '_m.png', pixels[..., 0] // 100 + 1),
        ):
            folder = root / 'scenes' / kind / split
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(x).save(folder / f'{index}{end}')
    shapes = load_tool('drawn_sets/make_shapes_coco')
    shapes.make_shapes(root / 'shapes', train=4, val=2, size=96)
    return root


PRETRAINING = 'moca_vit-s16_own-images', 'photos'
FINETUNE = 'classification/finetune_vit-b16_100e_own-classes', 'photos'
ATTENTIVE = 'classification/attentive_vit-b16_own-classes', 'photos'
LINEAR = 'classification/linear_vit-b16_100e_own-classes', 'photos'
LOW_SHOT = 'classification/lowshot_vit-b16_own-classes', 'photos'
MASKS = 'segmentation/segmenter_moca-vit-s16_mask_own-masks-512x512', 'scenes'
PROBE = 'segmentation/linear_vit-b16_own-masks-512x512', 'scenes'
IN_CONTEXT = 'segmentation/incontext_vit-b16_own-masks-512x512', 'scenes'
RETINANET = 'detection/retinanet_moca-vit-b16_fpn_1x_own-coco', 'shapes'
COMMON = ' batch_size=2 arch=deit-t'
SMALL = ' img_size=32 arch=deit-t'
OTHER_MASKS = ' img_suffix=.png seg_map_suffix=_m.png reduce_zero_label=True'
BOXES = ' classes=circle,cross,square,triangle img_size=96,64 epochs=1'
TEMPLATES = [
    (*PRETRAINING, 'knn_root=photos epochs=1 batch_size=6 img_size=64 '
     'jitter=.5 grey=.3 blur=.5 flip=.3 solarize=.2'),
    (*FINETUNE, 'epochs=1 batch_size=6' + SMALL),
    (*ATTENTIVE,
     'steps=2 batch_size=5 classes=class_0,class_1,class_2' + SMALL),
    (*ATTENTIVE, 'epochs=1 batch_size=5' + SMALL),
    (*LOW_SHOT, SMALL[1:]),
    (*LINEAR, 'epochs=1 batch_size=5' + SMALL),
    (*MASKS, 'classes=a,b,c crop_size=64,32 scale=128,64 epochs=1'
     + COMMON + OTHER_MASKS),
    (*PROBE, 'classes=a,b,c crop_size=32 epochs=1' + COMMON + OTHER_MASKS),
    (*IN_CONTEXT, 'classes=a,b,c img_size=32,64 bank_size=20 arch=deit-t'
     + OTHER_MASKS),
    pytest.param(*RETINANET, COMMON[1:] + BOXES, marks=pytest.mark.ops),
]  # fmt: skip


@pytest.mark.parametrize('config, data, settings', TEMPLATES)
def test_template(place, tmp_path, monkeypatch, config, data, settings):
    monkeypatch.chdir(place)
    settings = [f'data_root={data}', *settings.split()]
    cfg = read_run(CONFIGS / f'{config}.py', settings)
    # As on a command line, but in this process.
    names = inspect.signature(SETTINGS[cfg.settings]).parameters
    assert {text.split('=')[0] for text in settings} <= names.keys()
    # MMEngine names a run after the current second.
    others = [
        f'experiment_name={tmp_path.name}',
        'default_hooks.logger.interval=1',
    ] + [
        f'{key}.num_workers=0'
        for key in ('train_dataloader', 'val_dataloader', 'test_dataloader')
        if cfg.get(key)
    ]
    others += [
        f'{stage}_cfg.{key}.num_workers=0'
        for stage in ('val', 'test')
        for key in (cfg.get(f'{stage}_cfg') or {})
        if key.endswith('_dataloader')
    ]
    if 'init_cfg' in cfg.model.backbone:
        others.append('model.backbone.init_cfg=None')
    if 'needs_checkpoint' in cfg.default_hooks.get('checkpoint_fit', ()):
        others.append('default_hooks.checkpoint_fit.needs_checkpoint=False')
    if 'own-images' in config:
        others.append('model.backbone.arch=deit-t')
    options = '--work-dir', tmp_path, '--cfg-options', *settings, *others
    if cfg.get('train_cfg'):
        run_tool('tools/train.py', f'{config}.py', *options)
        assert [*tmp_path.glob('*.pth')]
        assert 'loss: ' in next(tmp_path.glob('*/*.log')).read_text()
        return
    init_default_scope(cfg.default_scope)
    model = MODELS.build(cfg.model)
    meta = dict(mmmoca=run_record(cfg.to_dict(), model))
    state = dict(state_dict=model.state_dict(), meta=meta)
    torch.save(state, tmp_path / 'a.pth')
    out = '--out', tmp_path / 'm.json', '--out-item', 'metrics'
    line = f'{config}.py', tmp_path / 'a.pth', *out, *options
    run_tool('tools/test.py', *line)
    assert (tmp_path / 'm.json').is_file()


def test_every_setting_is_in_a_run():
    used = {}
    for row in TEMPLATES:
        config, _, settings = getattr(row, 'values', row)
        cfg = read_run(CONFIGS / f'{config}.py')
        names = [text.split('=')[0] for text in settings.split()]
        used.setdefault(cfg.settings, {'cfg', 'data_root'}).update(names)
    for name, function in SETTINGS.items():
        assert used[name] == inspect.signature(function).parameters.keys()
