# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Sets the folder of a loader, reads its classes and labels, and checks it."""

import copy
from typing import Any

import torch
from mmengine.dataset import InfiniteSampler
from mmengine.structures import BaseDataElement
from mmpretrain.structures import DataSample
from torch.utils.data import ConcatDataset, DataLoader

from mmmoca.config_parts import member_configs
from mmmoca.datasets.class_names import check_same_classes
from mmmoca.datasets.held_out import NumberedSets
from mmmoca.datasets.seeding import members


def with_data_root(
    loader: DataLoader | dict, data_root: str | None
) -> DataLoader | dict:
    """Give the data sets of a loader's config another ``data_root``.

    Args:
        loader (DataLoader or dict): The config, which is not changed. It may
            be a built loader if ``data_root`` is None.
        data_root (str, optional): The folder. None returns ``loader`` as it
            is.

    Returns:
        DataLoader | dict: The config with the new folder.

    Raises:
        ValueError: If ``data_root`` is given for a built loader.
    """
    if data_root is not None:
        if not isinstance(loader, dict):
            raise ValueError(
                'data_root needs the config of a loader, not a built loader'
            )
        loader = copy.deepcopy(loader)
        for part in member_configs(loader['dataset']):
            part['data_root'] = data_root
    return loader


def class_names(loader: DataLoader) -> tuple[str, ...]:
    """Return the names of a loader's classes; () if they have no names.

    Raises:
        ValueError: If the parts of its data set have different classes.
    """
    dataset: Any = loader.dataset
    names, *others = (
        tuple(getattr(part, 'metainfo', {}).get('classes') or ())
        for part in [*members(dataset)] or [dataset]
    )
    for other in others:
        check_same_classes(names, other, ('some', 'other'))
    return names


def class_label(sample: DataSample | dict, role: str) -> int:
    """Return the class label of a data sample.

    Args:
        sample (DataSample | dict): Data sample of an image.
        role (str): What the images are for, such as 'bank', for the message.

    Returns:
        int: The label.

    Raises:
        ValueError: Unless the sample has exactly one label.
    """
    label = sample.get('gt_label')
    if label is None or torch.as_tensor(label).numel() != 1:
        raise ValueError(
            f'The {role} images have no class label. Use a data set with one '
            'integer label per image (mmmoca.ImageFolder: a folder per class, '
            'with_label=True), or leave out val_cfg, val_dataloader and '
            'val_evaluator (or test_*).'
        )
    return int(label)


def check_mask_labels(
    sample: BaseDataElement, number: int, *ignored: int
) -> None:
    """Raise if a mask has labels that stand for no class.

    Args:
        sample (BaseDataElement): Data sample of an image, with ``gt_sem_seg``.
        number (int): Number of classes.
        *ignored (int): One or more labels that are allowed although they
            stand for no class.

    Raises:
        ValueError: If the mask has any other label that is not below
            ``number``.
    """
    labels = sample.gt_sem_seg.data
    counted = ~torch.isin(labels, labels.new_tensor(ignored))
    largest = int(labels.where(counted, 0).amax())
    if largest >= number:
        raise ValueError(
            f'the mask of {sample.img_path} has the label {largest}, but '
            f'there are {number} classes: write {ignored[0]} for pixels '
            'without a class'
        )


def sample_index(sample: DataSample | dict, role: str) -> int:
    """Return the index of an image in its data set.

    Args:
        sample (DataSample | dict): Data sample of the image.
        role (str): What the images are for, for the message.

    Returns:
        int: Its ``sample_idx``.

    Raises:
        ValueError: If the sample has none.
    """
    if 'sample_idx' not in sample:
        raise ValueError(
            f'the {role} images have no sample_idx: include it in the '
            'meta_keys of PackInputs or PackSegInputs'
        )
    return int(sample.get('sample_idx'))


def check_loader(
    loader: DataLoader, role: str, with_label: bool = True
) -> None:
    """Raise if a loader cannot give each image once, with index and label.

    Args:
        loader (DataLoader): The loader.
        role (str): What its images are for, for messages.
        with_label (bool): Whether the images must have class labels. Defaults
            to True.

    Raises:
        ValueError: If the sampler never ends, if a ``ConcatDataset`` repeats
            the indices, or if the first image has no label.
    """
    dataset = loader.dataset
    sampler = getattr(loader.batch_sampler, 'sampler', loader.sampler)
    endless = getattr(sampler, 'infinite', False)  # set by SeededSampler
    if endless or isinstance(sampler, InfiniteSampler):
        raise ValueError(
            f'The {role} loader would never end: set '
            "sampler=dict(type='DefaultSampler', shuffle=False)."
        )
    numbered = isinstance(dataset, NumberedSets)
    if isinstance(dataset, ConcatDataset) and not numbered:
        raise ValueError(
            f'The {role} images are told apart by sample_idx, which '
            'ConcatDataset repeats: list all images in one data set, for '
            'example with its ann_file.'
        )
    if with_label and hasattr(dataset, 'get_data_info'):
        class_label(dataset.get_data_info(0), role)
