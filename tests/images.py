# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Small image folders, and configs that read them."""

import itertools
from pathlib import Path

import numpy as np
from mmengine.config import Config
from mmengine.dist import get_world_size
from PIL import Image

CONFIGS = Path(__file__).parents[1] / 'configs'
DEMO_CONFIG = CONFIGS / 'demo' / 'moca_vit-tiny_textures.py'
COUNT = itertools.count()


def write_images(root, train=16, val=5, classes=3):
    """Write class folders of JPEG files under ``train`` and ``val``.

    Args:
        root (Path): Where to write.
        train (int): Training images of each class.
        val (int): Validation images of each class.
        classes (int): Number of classes.
    """
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
    """Let every data loader of a config read ``root``, in one process."""
    root = str(root)
    for name in ('train', 'val', 'test'):
        loader = cfg.get(f'{name}_dataloader')
        loader.dataset.data_root = root
        loader.update(num_workers=0, persistent_workers=False)
    for name in ('val', 'test'):
        cfg[f'{name}_cfg'].bank_dataloader.dataset.data_root = root


def demo_config(root, work_dir, **options):
    """The demo's config, eight images a step, for a run of few words.

    Several processes share the images and run under DDP.

    Args:
        root (Path): Image folders, see :func:`write_images`.
        work_dir (Path): Where the run writes.
        **options: Overrides with dotted keys.

    Returns:
        Config: The config.
    """
    cfg = Config.fromfile(DEMO_CONFIG)
    point_to(cfg, root)
    processes = get_world_size()
    settings = {
        'work_dir': str(work_dir),
        # Each runner of a process needs a name of its own.
        'experiment_name': f'demo_{next(COUNT)}',
        'train_dataloader.batch_size': 8 // processes,
        'log_level': 'ERROR',
    }
    if processes > 1:
        settings['launcher'] = 'pytorch'
        settings['model_wrapper_cfg'] = dict(
            type='MMDistributedDataParallel', device_ids=None
        )
    cfg.merge_from_dict(settings | options)
    return cfg
