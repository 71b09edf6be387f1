# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Small configs of the four families, which train a step in a second."""

from pathlib import Path

from mmengine.config import Config

from ... import cityscapes
from ...digits import ARCH
from ...images import CONFIGS, write_images
from ...test_detection.conftest import shapes_config
from ...tools import load_tool

SIZE = 48
CLASSES = 5


def write_data(root: Path) -> None:
    """Draw the images of all families."""
    write_images(root / 'images', train=4, val=2, classes=CLASSES)
    cityscapes.write_tree(root / 'streets', train=2, val=1)
    tool = load_tool('dataset_converters/make_shapes_coco')
    tool.make_shapes(root / 'shapes', train=4, val=2, size=64)


def pretraining(root: Path) -> Config:
    """The quick start's."""
    cfg = _of_images('demo/moca_vit-tiny_textures.py', root)
    cfg.train_cfg.update(max_iters=2, val_interval=1)
    cfg.model.backbone.update(arch=ARCH, tap_layer=1)
    return cfg


def pretraining_of_the_paper(root: Path) -> Config:
    """The paper's recipe, with a small network and small views."""
    cfg = _of_images('moca_vit-b16_200e.py', root)
    cfg.train_cfg.update(max_epochs=1, val_interval=1)
    cfg.param_scheduler.warmup = 0.1
    cfg.model.backbone.update(
        arch=ARCH, img_size=SIZE, patch_size=8, tap_layer=1
    )
    cfg.model.codebook.update(num_words=64, border=1)
    cfg.model.neck.update(embed_dims=64, num_heads=4)
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        _shrink(loader.dataset.pipeline)
    _shrink(cfg.val_cfg.bank_dataloader.dataset.pipeline)
    return cfg


def linear(root: Path) -> Config:
    """Linear probing."""
    return _classifier('demo/linear_vit-tiny_textures.py', root)


def fine_tuning(root: Path) -> Config:
    """Fine-tuning."""
    cfg = _classifier('demo/finetune_vit-tiny_textures.py', root)
    cfg.param_scheduler.warmup = 0.1
    cfg.model.head.in_channels = ARCH['embed_dims']
    cfg.model.data_preprocessor.num_classes = CLASSES
    return cfg


def segmentation(root: Path) -> Config:
    """Segmenter on Cityscapes."""
    cfg = cityscapes.small_config(
        'segmenter_moca-vit-b16_mask_cityscapes-768x768.py',
        root / 'streets',
        root,
    )
    cfg.train_dataloader.batch_size = 2
    cfg.train_cfg.update(max_epochs=1, val_interval=1)
    return cfg


def detection(root: Path) -> Config:
    """Cascade Mask R-CNN."""
    cfg = shapes_config(root / 'shapes')
    cfg.model.backbone.arch.update(ARCH, num_layers=4)
    cfg.model.neck[0].in_channels = ARCH['embed_dims']
    cfg.model.neck[1].in_channels = [ARCH['embed_dims']] * 4
    cfg.train_cfg.update(max_epochs=1, val_interval=1)
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        loader.dataset.pipeline[
            next(
                i
                for i, transform in enumerate(loader.dataset.pipeline)
                if transform.type == 'Resize'
            )
        ].scale = (64, 64)
    return cfg


def _of_images(name: str, root: Path) -> Config:
    """Two batches of images to train on, two of others to judge by."""
    cfg = Config.fromfile(CONFIGS / name)
    loaders = [cfg.train_dataloader, cfg.val_dataloader]
    if bank := cfg.val_cfg.get('bank_dataloader'):
        loaders.append(bank)
        cfg.val_cfg.k = 5
    for loader in loaders:
        loader.update(num_workers=0, persistent_workers=False, batch_size=6)
        loader.dataset.data_root = str(root / 'images')
    return cfg


def _classifier(name: str, root: Path) -> Config:
    cfg = _of_images(name, root)
    cfg.default_hooks.checkpoint_fit.needs_checkpoint = False
    cfg.model.backbone.arch = ARCH
    cfg.model.head.num_classes = CLASSES
    cfg.train_cfg.update(max_epochs=1, val_interval=1)
    return cfg


def _shrink(transforms: list) -> None:
    """Let transforms make small images."""
    for transform in transforms:
        if isinstance(transform, list):
            _shrink(transform)
            continue
        for key in {'scale', 'crop_size'} & transform.keys():
            transform[key] = SIZE
        _shrink(transform.get('transforms', []))


FAMILIES = {
    'pretraining': pretraining,
    "pretraining, the paper's": pretraining_of_the_paper,
    'linear probing': linear,
    'fine-tuning': fine_tuning,
    'segmentation': segmentation,
    'detection': detection,
}
