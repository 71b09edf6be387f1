# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Small image folders, and configs that read them."""

from pathlib import Path

import numpy as np
from PIL import Image

CONFIGS = Path(__file__).parents[2] / 'configs'
DEMO_CONFIG = CONFIGS / 'demo' / 'moca_vit-tiny_textures.py'


def write_images(root, train=16, val=5, classes=3):
    """Write some JPEG files for each class under ``train`` and ``val``."""
    rng = np.random.default_rng(0)
    for split, count in (('train', train), ('val', val)):
        for label in range(classes):
            folder = Path(root) / split / f'class_{label}'
            folder.mkdir(parents=True)
            for index in range(count):
                low = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
                low[..., label % 3] //= 2
                image = Image.fromarray(low).resize((80, 60), Image.BICUBIC)
                image.save(folder / f'{index}.jpg')


def point_to(cfg, root):
    """Make all data loaders of a config read ``root``, without workers."""
    for split in ('train', 'val', 'test'):
        loop = cfg.get(f'{split}_cfg') or {}
        for loader in (
            cfg.get(f'{split}_dataloader'),
            loop.get('bank_dataloader'),
        ):
            if loader is not None:
                loader.dataset.data_root = str(root)
                loader.update(num_workers=0, persistent_workers=False)
                loader.pin_memory = False
