# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Checks that a segmentor's config fits its data sets.

This module does not import mmsegmentation.
"""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.utils import to_2tuple

from mmmoca.config_parts import parts_of, short_name, stage_loaders
from mmmoca.datasets.file_extensions import counted
from mmmoca.datasets.look.masks import (
    PATHS,
    left_out_of_masks,
    wanted_names,
)
from mmmoca.datasets.seeding import members
from mmmoca.files import outside
from mmmoca.messages import listed
from mmmoca.registry import DATASETS


def check_segmentation(cfg: Config, stages: Iterable[str]) -> None:
    """Check that a segmentor fits the data sets that it is about to read.

    Crop sizes must be multiples of the patch size. Heads must have the data
    set's number of classes. Every image and mask must exist.

    Args:
        cfg (Config): The config, whose ``default_scope`` is 'mmseg'.
        stages (Iterable[str]): The stages to run, from 'train', 'val' and
            'test'.

    Raises:
        FileNotFoundError: See :func:`check_files`.
        ValueError: If the config or the files are wrong. The message says what
            to write instead.
    """
    zeros = {}
    for stage in stages:
        for role, loader in stage_loaders(cfg, stage).items():
            for dataset in unread_sets(loader.dataset):
                zeros[dataset.reduce_zero_label] = role
                _check_sizes(cfg.model, dataset)
                _check_classes(cfg.model, dataset)
                _check_ignored(cfg, stage, dataset)
                check_files(dataset)
                if role == stage:
                    _check_written(cfg, stage, dataset)
    if len(zeros) > 1:
        raise ValueError(
            f'reduce_zero_label is True for {zeros[True]} and False for '
            f'{zeros[False]}, which shifts all classes by one: give both the '
            'same value'
        )


def _check_written(cfg: Config, stage: str, dataset: BaseDataset) -> None:
    """Refuse predictions that would have the same file name."""
    evaluators = parts_of(cfg.get(f'{stage}_evaluator'))
    if stage == 'train' or not any(e.get('output_dir') for e in evaluators):
        return
    dataset.full_init()
    names = Counter(
        Path(dataset.get_data_info(row)['img_path']).stem
        for row in range(len(dataset))
    )
    twice = [name for name, number in names.items() if number > 1]
    if twice:
        raise ValueError(
            f'{stage}_evaluator.output_dir: mmsegmentation names a prediction '
            'after its image, without the folder, and several images are '
            f'named {listed(twice)}: test the folders one by one with '
            'data_prefix'
        )


def unread_sets(config: dict) -> list[BaseDataset]:
    """Build a data set of mmsegmentation without listing its files.

    Args:
        config (dict): Config of the data set, or of a wrapper around several.

    Returns:
        list[BaseDataset]: The data set, or the data sets in the wrapper.
    """
    lazy = dict(config, _scope_='mmseg', lazy_init=True)
    return [*members(DATASETS.build(lazy))]


def _check_sizes(model: dict, dataset: BaseDataset) -> None:
    """Refuse crop and window sizes that are not multiples of the patch."""
    sizes = [
        transform.crop_size
        for transform in dataset.pipeline.transforms
        if type(transform).__name__ == 'RandomCrop'
    ]
    prepare = model.get('data_preprocessor') or {}
    sizes.append(prepare.get('size'))
    sizes.append((prepare.get('test_cfg') or {}).get('size_divisor'))
    sizes.append((model.get('test_cfg') or {}).get('crop_size'))
    patch = to_2tuple(model['backbone'].get('patch_size', 1))
    for size in map(to_2tuple, filter(None, sizes)):
        if any(side % step for side, step in zip(size, patch)):
            raise ValueError(
                f'the size {size} is not a multiple of the patch {patch}: '
                'write the same multiple for RandomCrop, model.backbone.'
                'img_size, model.data_preprocessor.size and model.test_cfg.'
                'crop_size, and any multiple for model.data_preprocessor.'
                'test_cfg.size_divisor'
            )


def _check_classes(model: dict, dataset: BaseDataset) -> None:
    """Refuse heads and losses that do not fit the classes."""
    found = len(dataset.metainfo.get('classes') or ())
    for name in ('decode_head', 'auxiliary_head'):
        for head in parts_of(model.get(name)):
            if head.get('num_classes', found) != found:
                raise ValueError(
                    f'the data set {dataset.data_root} has {found} classes: '
                    f'write model.{name}.num_classes={found}, or list its '
                    "classes in metainfo=dict(classes=('background', ...))"
                )
            for loss in parts_of(head.get('loss_decode')):
                _check_loss(f'model.{name}', loss, found, dataset.data_root)


def _check_loss(name: str, loss: dict, classes: int, place: str) -> None:
    """Refuse settings that break mmsegmentation's softmax cross-entropy."""
    if short_name(loss) != 'CrossEntropyLoss' or loss.get('use_sigmoid'):
        return
    if classes == 1:
        raise ValueError(
            f'the data set {place} has one class, which the softmax of {name} '
            'always predicts: list the background as a class, too'
        )
    if loss.get('class_weight') and loss.get('avg_non_ignore'):
        raise ValueError(
            'mmsegmentation fails with class_weight and avg_non_ignore=True: '
            f'write {name}.loss_decode.avg_non_ignore=False. With '
            'class_weight, the mean is over the labelled pixels in any case'
        )


def _check_ignored(cfg: Config, stage: str, dataset: BaseDataset) -> None:
    """Refuse a config that does not ignore the data set's ``ignore_index``.

    mmsegmentation does not read this key of a data set, so the model and the
    evaluators must repeat it. The key tells :func:`mask_facts` which labels
    may occur.
    """
    if dataset.ignore_index == 255:
        return
    outer, prefix = cfg, ''
    keys = {f'{stage}_evaluator': 'ignore_index'}
    if stage == 'train':
        outer, prefix = cfg.model, 'model.'
        keys = dict(
            data_preprocessor='seg_pad_val',
            decode_head='ignore_index',
            auxiliary_head='ignore_index',
        )
    wrong = []
    for name, key in keys.items():
        part = outer.get(name)
        # A part may be None, or a list.
        there = part and isinstance(part, dict)
        if there and part.get(key, 255) not in (None, dataset.ignore_index):
            wrong.append(f'{prefix}{name}.{key}')
    if wrong:
        raise ValueError(
            f'the data set {dataset.data_root} leaves out the label id '
            f'{dataset.ignore_index}: set {listed(wrong, 9)} to it, too'
        )


def check_files(dataset: BaseDataset) -> None:
    """Check that each image and each mask exists.

    Args:
        dataset (BaseDataset): The data set.

    Raises:
        FileNotFoundError: If the folder of the images is missing.
        ValueError: If there are no images, or if files are missing. The
            message names the first ones that are missing.
    """
    folder = dataset.data_prefix['img_path']
    listed_here = not dataset.ann_file and '://' not in folder
    if listed_here and not os.path.isdir(folder):
        raise FileNotFoundError(
            f'there is no folder {folder}: correct data_root or data_prefix '
            'of the data set'
        )
    infos = dataset.load_data_list()
    if not infos:
        others = counted(left_out_of_masks(dataset)) or 'nor any other file'
        raise ValueError(
            f'there is no image *{dataset.img_suffix} in {folder} ({others}): '
            'correct data_root, data_prefix or img_suffix'
        )
    for key in PATHS:
        paths = [info[key] for info in infos if key in info]
        root = dataset.data_prefix.get(key) or ''
        missing = outside(root, paths) if dataset.ann_file else []
        missing += [path for path in paths if not os.path.isfile(path)]
        if missing:
            split = listed_by = ''
            if dataset.ann_file:
                split = f' or not below {root}'
                listed_by = f', or the list {dataset.ann_file}'
            raise ValueError(
                f'{len(missing)} of {len(paths)} files are missing{split}, '
                f'such as {listed(missing, 2)}: {wanted_names(dataset)}; '
                f'correct data_prefix, the suffixes{listed_by} '
                '(docs/guides/segment.md)'
            )
