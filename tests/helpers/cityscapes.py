# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A small Cityscapes tree of drawn images, and configs that read it."""

import itertools
import uuid
from pathlib import Path

import cv2
import numpy as np
from mmengine.config import Config
from mmengine.runner import Runner

from mmmoca.engine.config import leave_out_hooks

from . import images

CONFIGS = images.CONFIGS / 'segmentation'
LINEAR = 'segmenter_moca-vit-b16_linear_cityscapes-768x768.py'
MASK = 'segmenter_moca-vit-b16_mask_cityscapes-768x768.py'
CITIES = dict(train=('aachen', 'jena'), val=('frankfurt', 'lindau'))
SIZE = (64, 128)  # height, width
SPLITS, BANK = ('train', 'val', 'test'), 'bank_dataloader'
ARCH = dict(embed_dims=64, num_layers=3, num_heads=2, feedforward_channels=128)
# Train id and raw label of road, building, sky, person, car, and none.
RAW_IDS = {0: 7, 2: 11, 10: 23, 11: 24, 13: 26, 255: 0}
COLOURS = np.random.default_rng(0).integers(0, 200, (256, 3))


def draw_scene(rng):
    """Draw tiles, (H, W, 3), and their train ids, (H, W); both are uint8."""
    ids = rng.choice(list(RAW_IDS), (4, 8)).astype(np.uint8)
    ids = ids.repeat(SIZE[0] // 4, axis=0).repeat(SIZE[1] // 8, axis=1)
    image = COLOURS[ids] + rng.integers(0, 50, 3)
    return image.astype(np.uint8), ids


def write_tree(root, **counts):
    """Write images of each city, with their raw labels and train ids."""
    rng = np.random.default_rng(0)
    to_raw = np.zeros(256, np.uint8)
    to_raw[list(RAW_IDS)] = list(RAW_IDS.values())
    for split, count in counts.items():
        for city, index in itertools.product(CITIES[split], range(count)):
            image, ids = draw_scene(rng)
            name = f'{city}_{index:06d}_000019'
            files = {
                f'leftImg8bit/{split}/{city}/{name}_leftImg8bit': image,
                f'gtFine/{split}/{city}/{name}_gtFine_labelTrainIds': ids,
                f'gtFine/{split}/{city}/{name}_gtFine_labelIds': to_raw[ids],
            }
            for path, pixels in files.items():
                path = Path(root) / f'{path}.png'
                path.parent.mkdir(parents=True, exist_ok=True)
                assert cv2.imwrite(str(path), pixels)


def shrink(cfg, root, work_dir, crop, steps=None, **options):
    """Make a config read ``root`` and use a small ViT with 8-pixel patches.

    Args:
        cfg (Config): Changed in place.
        root (Path): Folder of the data sets.
        work_dir (Path): Work dir of the runs.
        crop (tuple[int, int]): Size of the crops.
        steps (dict, optional): Values for transforms that have these keys.
        **options: Further overrides, with dotted keys.
    """
    cfg.model.backbone.update(arch=dict(ARCH), patch_size=8, img_size=crop)
    images.point_to(cfg, root)
    steps = dict(crop_size=crop) | (steps or {})
    loaders = [cfg.get(f'{split}_dataloader') for split in SPLITS]
    for loader in filter(None, [*loaders, cfg.test_cfg.get(BANK)]):
        for step in loader.dataset.pipeline:
            step.update({key: steps[key] for key in steps.keys() & {*step}})
    usual = {'work_dir': str(work_dir), 'log_level': 'WARNING'}
    cfg.merge_from_dict(usual | options)
    leave_out_hooks(cfg)
    return cfg


def small_config(name, root, work_dir, **options):
    """Return a config of ``configs/segmentation`` for the drawn images.

    Its ViT has 3 layers and patches of 8 pixels; options have dotted keys.
    """
    cfg = Config.fromfile(CONFIGS / name)
    width, crop = ARCH['embed_dims'], (64, 64)
    backbone = cfg.model.backbone
    del backbone.init_cfg
    if 'frozen_stages' in backbone:
        backbone.frozen_stages = 3
    for head in (cfg.model.decode_head, cfg.model.get('auxiliary_head')):
        if head is not None:
            many = isinstance(head.in_channels, list)
            head.in_channels = [width] * 4 if many else width
            if 'channels' in head:
                head.channels = width
            if 'embed_dims' in head:
                head.update(embed_dims=width, num_heads=2)
    cfg.model.data_preprocessor.size = crop
    cfg.model.test_cfg.update(crop_size=crop, stride=(48, 48))
    if 'out_indices' in backbone:
        backbone.out_indices = [0, 1, 2, 3]
        cfg.model.neck.update(in_channels=width, patch_size=8)
        options = {'model.backbone.arch.num_layers': 4} | options
    small = dict(scale=SIZE[::-1], ratio_range=(0.8, 1.25))
    options = {'default_hooks.logger.interval': 5} | options
    return shrink(cfg, root, work_dir, crop, small, **options)


def run(name, root, work_dir, epochs=1, **options):
    """Train with :func:`small_config` and validate; return the runner."""
    options = {
        'train_cfg.max_epochs': epochs,
        'train_cfg.val_interval': 1,
        'default_hooks.checkpoint.interval': 1,
        # Runners of one process need different names.
        'experiment_name': f'{Path(work_dir).name}{uuid.uuid4()}',
    } | options
    runner = Runner.from_cfg(small_config(name, root, work_dir, **options))
    runner.train()
    return runner
