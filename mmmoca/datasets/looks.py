# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A look at some images before a run."""

import copy
from collections.abc import Callable

import numpy as np
from mmcv.transforms import LoadImageFromFile
from mmengine.dataset import BaseDataset

from mmmoca.messages import listed


def check_images(
    dataset: BaseDataset,
    most: int,
    check: Callable[[dict], object] = bool,
) -> None:
    """Refuse a set of which some images cannot be used.

    Args:
        dataset (BaseDataset): See :func:`unusable_images`.
        most (int): See there.
        check (Callable[[dict], object]): See there.

    Raises:
        OSError: Counts and names them.
    """
    if wrong := unusable_images(dataset, most, check):
        raise OSError(
            f'{len(wrong)} of {min(most, len(dataset))} images that were '
            f'tried cannot be used: {listed(wrong, 2)}'
        )


def unusable_images(
    dataset: BaseDataset,
    most: int,
    check: Callable[[dict], object] = bool,
) -> list[str]:
    """Load some images of a set, evenly spaced, by its pipeline's loader.

    Args:
        dataset (BaseDataset): The set. One without a loader has no files.
        most (int): How many to look at, at most.
        check (Callable[[dict], object]): Raises for what is wrong with a
            loaded image.

    Returns:
        list[str]: The files that cannot be used, and why.
    """
    steps = dataset.pipeline.transforms
    load = next((s for s in steps if isinstance(s, LoadImageFromFile)), None)
    if load is None:
        return []
    load = copy.copy(load)
    load.skip_unreadable = False  # of our loader
    number, wrong = min(most, len(dataset)), []
    for index in np.linspace(0, len(dataset) - 1, number).astype(int):
        info = dataset.get_data_info(index)
        path = info['img_path']
        try:
            check(load(info))
        except Exception as error:  # each decoder has errors of its own
            wrong.append(f'{path}: {error}')
    return wrong
