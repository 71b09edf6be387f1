# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Short settings of the templates, one function for each kind of template.

A config names its function, such as ``settings = 'own_images'``. The arguments
of the function are the settings. They can be given on a command line, at the
top of a file that inherits the config, and to :func:`mmmoca.pretrain`. Each
setting writes the keys that it stands for and those that follow from it. A
setting that is not given changes nothing.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import index
from typing import Any

from mmengine.config import Config, ConfigDict
from mmengine.utils import to_2tuple

from mmmoca.config_parts import (
    member_configs,
    short_name,
    smallest_crop,
    stage_loaders,
)
from mmmoca.messages import listed

from .options import find_part

# A size in pixels: one number for both sides, or two numbers.
Size = int | tuple[int, int]
# The names of classes, or the path of a file that lists them.
Names = str | Sequence[str]
# The name or the sizes of a ViT, as in ``arch`` of mmpretrain.
Arch = str | dict


def own_images(
    cfg: Config,
    *,
    data_root: str | None = None,
    knn_root: str | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    img_size: int | None = None,
    jitter: float | None = None,
    grey: float | None = None,
    blur: float | None = None,
    flip: float | None = None,
    solarize: float | None = None,
) -> None:
    """Set up pretraining on one's own images.

    Args:
        cfg (Config): Changed in place.
        data_root (str, optional): Folder of the images.
        knn_root (str, optional): Labelled images, in ``train/<class>/`` and
            ``val/<class>/``, for k-NN.
        epochs (int, optional): Passes over the images.
        batch_size (int, optional): Batch size of each process.
        img_size (int, optional): Side of a view, in pixels. The border of
            the codebook, the size that images are decoded to, and the resizing
            before a central crop follow from it.
        jitter (float, optional): Probability that the colours of a view
            change.
        grey (float, optional): Probability that a view becomes grey.
        blur (float, optional): Probability that a view is blurred.
        flip (float, optional): Probability that a view is flipped.
        solarize (float, optional): Probability that the second view is
            solarised.
    """
    for part in _sets(cfg, 'train'):
        _write(part, data_root=data_root)
    if knn_root is not None and (loop := cfg.val_cfg):
        if 'bank_dataloader' not in loop:
            raise ValueError(
                f'knn_root={knn_root}: this config does not validate with '
                'k-NN, so leave knn_root out'
            )
        loop.data_root = knn_root
    if cfg.get('test_cfg'):
        _write(cfg.test_cfg, data_root=knn_root)
    _write_length(cfg, epochs, batch_size)
    if img_size is not None:
        _write_views(cfg, img_size)
    for key, name, probability in (
        ('jitter', 'RandomApply', jitter),
        ('grey', 'RandomGrayscale', grey),
        ('blur', 'GaussianBlur', blur),
        ('flip', 'RandomFlip', flip),
        ('solarize', 'Solarize', solarize),
    ):
        if probability is not None:
            for views in _views(cfg):
                for view in views[1:] if name == 'Solarize' else views:
                    _write_probability(view, key, name, probability)


def own_classes(
    cfg: Config,
    *,
    data_root: str | None = None,
    classes: Names | None = None,
    img_size: int | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    arch: Arch | None = None,
) -> None:
    """Set up classification with one's own classes.

    Args:
        cfg (Config): Changed in place.
        data_root (str, optional): Folder of the images, which are in
            ``train/<class>/`` and ``val/<class>/``. The number of classes
            follows from it.
        classes (Names, optional): Names of the classes, for images in shards
            or on a server. For folders of images on this machine, leave it
            out: the folders give the names.
        img_size (int, optional): Side of the images, in pixels.
        epochs (int, optional): Passes over the training images.
        steps (int, optional): Training steps, instead of epochs, for a loop
            that counts steps.
        batch_size (int, optional): Batch size of each process.
        arch (Arch, optional): Architecture of the backbone.
    """
    sets = [*_sets(cfg, 'train', 'val', 'test')]
    if 'data_root' in (cfg.get('test_cfg') or {}):
        _write(cfg.test_cfg, data_root=data_root)
    for part in (cfg.model.get('head'), cfg.model.get('data_preprocessor')):
        if 'num_classes' in (part or {}):
            number = _count(classes, sets[0], data_root)
            _write(part, num_classes=number)
    _write_data(sets, data_root, classes)
    if img_size is not None:
        _write_size(cfg, sets, img_size)
    if epochs is not None and 'max_iters' in (cfg.get('train_cfg') or {}):
        _count_epochs(cfg)
    _write_length(cfg, epochs, batch_size, steps)
    if arch is not None:
        width = _write_arch(cfg, arch)['embed_dims']
        if 'in_channels' in (cfg.model.get('head') or {}):
            cfg.model.head.in_channels = width


def own_masks(
    cfg: Config,
    *,
    data_root: str | None = None,
    classes: Names | None = None,
    crop_size: Size | None = None,
    scale: Size | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    arch: Arch | None = None,
    img_suffix: str | None = None,
    seg_map_suffix: str | None = None,
    reduce_zero_label: bool | None = None,
) -> None:
    """Set up segmentation with one's own masks.

    Args:
        cfg (Config): Changed in place.
        data_root (str, optional): Folder with ``images`` and ``masks``.
        classes (Names, optional): Names of the classes, in the order of their
            indices in the masks.
        crop_size (Size, optional): Height and width of crops, in pixels:
            multiples of the patch size.
        scale (Size, optional): Size that images are first resized to: limits
            of the longer and the shorter side, or one number for both.
        epochs (int, optional): Passes over the training images.
        batch_size (int, optional): Batch size of each process.
        arch (Arch, optional): Architecture of the backbone.
        img_suffix (str, optional): Ending of the images' names, such as
            '.png'.
        seg_map_suffix (str, optional): Ending of the masks' names.
        reduce_zero_label (bool, optional): Whether the masks number the
            classes from 1, and 0 is ignored.
    """
    sets = [*_sets(cfg, 'train', 'val', 'test')]
    masks = dict(
        img_suffix=img_suffix,
        seg_map_suffix=seg_map_suffix,
        reduce_zero_label=reduce_zero_label,
    )
    _write_data(sets, data_root, classes, **masks)
    if classes is not None:
        cfg.model.decode_head.num_classes = len(classes)
    if crop_size is not None:
        size = _pair(crop_size)
        for part in _sets(cfg, 'train'):
            find_part(part.pipeline, 'RandomCrop').crop_size = size
        cfg.model.data_preprocessor.size = size
        cfg.model.backbone.img_size = size
        cfg.model.test_cfg.crop_size = size
        cfg.model.test_cfg.stride = tuple(2 * side // 3 for side in size)
    _write_scale(sets, scale)
    _write_length(cfg, epochs, batch_size)
    if arch is not None:
        sizes, head = _write_arch(cfg, arch), cfg.model.decode_head
        width = sizes['embed_dims']
        if 'frozen_stages' in cfg.model.backbone:
            cfg.model.backbone.frozen_stages = sizes['num_layers']
        _write_channels(head, width)
        if 'embed_dims' in head:  # Segmenter's decoder is as wide as the ViT
            heads = sizes['num_heads']
            head.update(channels=width, embed_dims=width, num_heads=heads)


def masks_in_context(
    cfg: Config,
    *,
    data_root: str | None = None,
    classes: Names | None = None,
    img_size: Size | None = None,
    bank_size: int | None = None,
    arch: Arch | None = None,
    img_suffix: str | None = None,
    seg_map_suffix: str | None = None,
    reduce_zero_label: bool | None = None,
) -> None:
    """Set up in-context segmentation with one's own masks.

    Args:
        cfg (Config): Changed in place.
        data_root (str, optional): Folder with ``images`` and ``masks``.
        classes (Names, optional): See :func:`own_masks`.
        img_size (Size, optional): Height and width of the images, in pixels:
            multiples of the patch size.
        bank_size (int, optional): Intended number of patches in the bank.
        arch (Arch, optional): Architecture of the backbone.
        img_suffix (str, optional): See :func:`own_masks`.
        seg_map_suffix (str, optional): See :func:`own_masks`.
        reduce_zero_label (bool, optional): See :func:`own_masks`.
    """
    sets = [*_sets(cfg, 'test')]
    masks = dict(
        img_suffix=img_suffix,
        seg_map_suffix=seg_map_suffix,
        reduce_zero_label=reduce_zero_label,
    )
    _write_data(sets, data_root, classes, **masks)
    if img_size is not None:
        size = _pair(img_size)
        cfg.model.backbone.img_size = size
        _write_scale(sets, size[::-1])  # unlike a crop, width first
        for part in sets:
            for step in part.pipeline:
                if short_name(step) == 'RandomCrop':
                    step.crop_size = size
    _write(cfg.test_cfg, bank_size=bank_size)
    if arch is not None:
        _write_arch(cfg, arch)


def own_boxes(
    cfg: Config,
    *,
    data_root: str | None = None,
    classes: Names | None = None,
    img_size: Size | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    arch: Arch | None = None,
) -> None:
    """Set up detection of one's own objects, annotated in COCO's format.

    Args:
        cfg (Config): Changed in place.
        data_root (str, optional): Folder with ``annotations``, ``train`` and
            ``val``.
        classes (Names, optional): Names of the categories, in the order of
            the annotation file.
        img_size (Size, optional): Limits of the longer and the shorter
            side, in pixels, or one number for both.
        epochs (int, optional): Passes over the training images.
        batch_size (int, optional): Batch size of each process.
        arch (Arch, optional): Architecture of the backbone.
    """
    sets = [*_sets(cfg, 'train', 'val', 'test')]
    _write_data(sets, data_root, classes)
    if classes is not None:
        cfg.model.num_classes = len(classes)
    _write_scale(sets, img_size)
    _write_length(cfg, epochs, batch_size)
    if arch is not None:
        sizes = _write_arch(cfg, arch)
        width, depth = sizes['embed_dims'], sizes['num_layers']
        backbone, necks = cfg.model.backbone, cfg.model.neck
        last = backbone.out_indices[-1] + 1
        backbone.out_indices = _at_shares(backbone.out_indices, last, depth)
        for neck in necks[:2]:
            _write_channels(neck, width)
        if cfg.get('activation_checkpointing'):
            cfg.activation_checkpointing = [
                f'backbone.layers.{layer}' for layer in range(depth)
            ]


SETTINGS: dict[str, Callable] = {
    function.__name__: function
    for function in (
        own_images,
        own_classes,
        own_masks,
        masks_in_context,
        own_boxes,
    )
}


# Setting -> key that displaces it: a file that writes the key does not inherit
# the setting.
REPLACED_BY = dict(epochs='train_cfg.max_iters', steps='train_cfg.max_epochs')


def _write(part: ConfigDict | None, **values: Any) -> None:
    """Write the values that are not None."""
    given = {key: value for key, value in values.items() if value is not None}
    if given and part is None:
        raise TypeError(
            'the config lacks the part to set: is it a config for training?'
        )
    if given:
        part.update(given)


def _write_length(
    cfg: Config,
    epochs: int | None,
    batch_size: int | None,
    steps: int | None = None,
) -> None:
    """Write the length of training, and the batch size of training or test."""
    loop = cfg.get('train_cfg')
    if not loop and (epochs, steps) != (None, None):
        raise ValueError(
            'this config does not train, so leave epochs and steps out'
        )
    by_steps = 'max_iters' in (loop or {})
    if epochs is not None and by_steps:
        raise ValueError(
            f'epochs={epochs}: this loop counts steps, so write '
            'train_cfg.max_iters instead'
        )
    if steps is not None and not by_steps:
        raise ValueError(f'steps={steps}: this loop counts epochs')
    _write(loop, max_epochs=epochs, max_iters=steps)
    for loader in stage_loaders(cfg, 'train' if loop else 'test').values():
        _write(loader, batch_size=batch_size)


def _views(cfg: Config) -> list[list[list[ConfigDict]]]:
    """Return the transforms of both views, for each training set."""
    return [
        find_part(part.pipeline, 'MultiView').transforms
        for part in _sets(cfg, 'train')
    ]


def _write_probability(
    view: list[ConfigDict], key: str, name: str, probability: float
) -> None:
    """Write a transform's probability; ignore 0 for a missing transform."""
    names = [*map(short_name, view)]
    if not probability and name not in names:
        return
    if name not in names:
        raise ValueError(
            f'{key}={probability}: the views of this config have no {name} '
            f'(only {listed(names, 9)}), so leave {key} out, or write the '
            'views yourself'
        )
    find_part(view, name).prob = probability


def _write_views(cfg: Config, img_size: int) -> None:
    """Write the size of views, in pixels, and what follows from it."""
    cfg.model.backbone.img_size = img_size
    # A seventh of the rows on each edge, like the paper's 2 of 14.
    patch = max(to_2tuple(cfg.model.backbone.patch_size))
    cfg.model.codebook.border = round(img_size / patch / 7)
    for part in _sets(cfg, 'train'):
        for step in part.pipeline:
            if step.get('reduce_to') is not None:
                views = find_part(part.pipeline, 'MultiView').transforms
                crops = [find_part(v, 'RandomResizedCrop') for v in views]
                # This makes the smallest crop at least as large as a view.
                step.reduce_to = math.ceil(
                    img_size / min(map(smallest_crop, crops))
                )
    for view in chain.from_iterable(_views(cfg)):
        find_part(view, 'RandomResizedCrop').scale = img_size
    for part in _sets(cfg, 'val', 'test'):
        _resize(part.pipeline, img_size)


def _write_size(
    cfg: Config, sets: Sequence[ConfigDict], img_size: int
) -> None:
    """Write the size of images, which must be a multiple of the patch."""
    patch = cfg.model.backbone.get('patch_size', 16)
    if any(img_size % side for side in to_2tuple(patch)):
        raise ValueError(
            f'img_size={img_size} is not a multiple of the patch, {patch}'
        )
    cfg.model.backbone.img_size = img_size
    for part in sets:
        _resize(part.pipeline, img_size)


def _count_epochs(cfg: Config) -> None:
    """Change a loop that counts steps into one that counts epochs."""
    cfg.train_cfg = ConfigDict(type='EpochBasedTrainLoop', val_interval=1)
    cfg.train_dataloader.sampler.infinite = False
    cfg.param_scheduler.update(by_epoch=True, convert_to_iter_based=True)
    cfg.log_processor.by_epoch = True
    cfg.default_hooks.checkpoint.update(by_epoch=True, interval=1)


def _write_data(
    sets: Sequence[ConfigDict],
    data_root: str | None,
    classes: Names | None,
    **values: Any,
) -> None:
    for part in sets:
        _write(part, data_root=data_root, **values)
        if classes is not None:
            part.setdefault('metainfo', ConfigDict()).classes = classes


def _write_scale(sets: Sequence[ConfigDict], scale: Size | None) -> None:
    for part in sets if scale is not None else ():
        for step in part.get('pipeline', ()):
            if short_name(step) in ('RandomResize', 'Resize'):
                step.scale = _pair(scale)


def _write_arch(cfg: Config, arch: Arch) -> dict[str, int]:
    """Write the sizes of the backbone, and return them."""
    import mmmoca.import_mmpretrain  # noqa: F401  # isort: skip
    from mmpretrain.models.backbones import VisionTransformer

    known = VisionTransformer.arch_zoo
    if isinstance(arch, dict):
        arch = {key: n for key, n in arch.items() if key != '_delete_'}
    elif arch not in known:
        raise ValueError(
            f'arch={arch!r}: write one of {listed(known, 99)}. Sizes of your '
            'own, arch = dict(embed_dims=128, ...), go into a config file'
        )
    cfg.model.backbone.arch = arch
    return arch if isinstance(arch, dict) else known[arch]


def _at_shares(layers: Sequence[int], last: int, depth: int) -> list[int]:
    """Return layers at the same relative depths in a ViT of another depth.

    Layers are counted from 0. The returned layers are distinct if the ViT has
    enough layers.
    """
    found: list[int] = []
    for number, layer in enumerate(layers):
        lowest = found[-1] + 1 if found else 0
        highest = max(0, depth - len(layers) + number)
        share = (layer + 1) * depth // last - 1
        found.append(min(max(share, lowest), highest))
    return found


def _write_channels(part: ConfigDict, width: int) -> None:
    """Write the input width of a part, for all levels if it has several."""
    several = isinstance(part.in_channels, (list, tuple))
    part.in_channels = [width] * len(part.in_channels) if several else width


def _resize(pipeline: Sequence[ConfigDict], size: int) -> None:
    """Make a pipeline return images of ``size`` x ``size`` pixels."""
    steps = {short_name(step): step for step in pipeline}
    crop = steps.get('CenterCrop', {}).get('crop_size', 224)
    for name, step in steps.items():
        if name == 'RandomResizedCrop':
            step.scale = size
        elif name == 'CenterCrop':
            step.crop_size = size
        elif name in ('ResizeEdge', 'ResizeBands'):
            # Keep the ratio to the crop, such as ImageNet's 256 to 224.
            step.scale = step.scale * size // to_2tuple(crop)[0]


def _sets(cfg: Config, *stages: str) -> Iterator[ConfigDict]:
    """Yield the configs of all data sets that stages read."""
    for stage in stages:
        for loader in stage_loaders(cfg, stage).values():
            yield from member_configs(loader.dataset)


def _pair(size: Size) -> tuple[int, int]:
    """Return two sides, in the given order."""
    return tuple(map(index, to_2tuple(size)))


def _count(
    classes: Names | None, dataset: ConfigDict, data_root: str | None
) -> int | None:
    """Count the classes: the given names, or folders on this machine."""
    if classes is not None:
        return len(classes)
    if data_root is None:
        return None
    from mmmoca.datasets.image_folder import visible_folders

    root = os.path.expanduser(data_root)
    folder = os.path.join(root, dataset.get('data_prefix') or '')
    found = visible_folders(folder) if os.path.isdir(folder) else []
    return len(found) or None
