# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The images that a picture shows, and those that it searches."""

import os
import warnings
from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import chain, zip_longest
from pathlib import Path

import torch
from mmengine.config import Config, ConfigDict
from mmpretrain.registry import DATASETS
from torch.utils.data import Dataset

from mmmoca.evaluation.loaders import with_data_root


def build_sets(cfg: Config, data: str | None) -> tuple[Dataset, Dataset]:
    """Build the data sets of the images and of the bank.

    Without labelled images both are the same set.

    Args:
        cfg (Config): A pretraining config.
        data (str, optional): Folder of the images, at any depth. Defaults to
            that of the config.

    Returns:
        tuple[Dataset, Dataset]: Both sets.

    Raises:
        ValueError: If no loader of the config has a pipeline for them.
    """
    loop = cfg.get('val_cfg') or {}
    if data is None and loop.get('bank_dataloader') is not None:
        loaders = cfg.val_dataloader, loop.bank_dataloader
        return tuple(
            DATASETS.build(
                with_data_root(loader, loop.get('data_root')).dataset
            )
            for loader in loaders
        )
    loader = cfg.get('val_dataloader') or cfg.get('test_dataloader')
    if loader is None:
        raise ValueError(
            'the config has no test_dataloader, whose pipeline reads the '
            'images to show'
        )
    source = cfg.train_dataloader.dataset
    if data is not None:
        source = dict(
            type='mmmoca.ImageFolder', data_root=data, with_label=False
        )
        if 'extensions' in loader.dataset:
            source['extensions'] = loader.dataset.extensions
    source = ConfigDict(source, pipeline=loader.dataset.pipeline)
    dataset = DATASETS.build(source)
    masks = os.path.join(data or '', 'masks', '')
    if data is not None and os.path.isdir(masks):  # they are no images
        paths = [info['img_path'] for info in dataset.data_list]
        rows = [i for i, p in enumerate(paths) if not p.startswith(masks)]
        dataset = dataset.get_subset(rows)
    return dataset, dataset


def readable(dataset: Dataset, rows: list[int]) -> list[int]:
    """Those of some rows whose images can be read.

    Args:
        dataset (Dataset): The images.
        rows (list[int]): Some of them.

    Returns:
        list[int]: The rows. A warning counts the others.

    Raises:
        OSError: If there are none.
    """
    dataset.test_mode = True  # else another image would take its place
    good, problem = [], None
    for row in rows:
        try:
            dataset[row]
            good.append(row)
        except OSError as error:
            problem = error
    if problem is not None:
        if not good:
            raise problem
        warnings.warn(
            f'{len(rows) - len(good)} of {len(rows)} images are left out, the '
            f'last because {problem}',
            stacklevel=3,
        )
    return good


def pick_images(groups: Sequence[Hashable], count: int) -> list[int]:
    """Pick random images from as many different groups as possible.

    Args:
        groups (Sequence[Hashable]): Group of each image.
        count (int): Number of images to pick, at most all.

    Returns:
        list[int]: Indices, sorted by group and then by index.
    """
    members = defaultdict(list)
    for index in torch.randperm(len(groups)).tolist():
        members[groups[index]].append(index)
    turns = chain.from_iterable(zip_longest(*members.values()))
    chosen = [index for index in turns if index is not None][:count]
    return sorted(chosen, key=lambda index: (groups[index], index))


def place_of(dataset: Dataset, row: int) -> tuple[str, str]:
    """Class or folder of an image, and the name of its file."""
    info = dataset.get_data_info(row)
    path = Path(str(info.get('img_path', row)))
    classes = dataset.metainfo.get('classes')
    label = info.get('gt_label')
    known = classes and label is not None
    folder = classes[int(label)] if known else path.parent.name
    return folder[-20:], path.name[-20:]


def root_of(dataset: Dataset) -> str:
    """The folder of a data set, as its config has it."""
    prefix = getattr(dataset, 'data_prefix', {}).get('img_path')
    return str(prefix or dataset.data_root).rstrip('/')
