# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A look at some images before a run."""

import copy
from collections.abc import Callable, Iterator

import numpy as np
from mmcv.transforms import LoadImageFromFile
from mmengine.dataset import BaseDataset

from mmmoca.messages import listed


def look_at(
    dataset: BaseDataset,
    most: int,
    check: Callable[[dict], object] = bool,
) -> Iterator[tuple[str, Exception | None]]:
    """Load some images of a set, evenly spaced, by its pipeline's loader.

    Args:
        dataset (BaseDataset): The set. One without a loader has no files.
        most (int): How many to look at, at most.
        check (Callable[[dict], object]): Raises for what is wrong with a
            loaded image.

    Yields:
        tuple[str, Exception | None]: A file, and why it cannot be used.
    """
    steps = dataset.pipeline.transforms
    load = next((s for s in steps if isinstance(s, LoadImageFromFile)), None)
    if load is None:
        return
    load = copy.copy(load)
    # Of MMCV's loader and of ours.
    load.ignore_empty = load.skip_unreadable = False
    number = min(most, len(dataset))
    for index in np.linspace(0, len(dataset) - 1, number).astype(int):
        info = dataset.get_data_info(index)
        path, problem = info['img_path'], None
        try:
            check(load(info))
        except Exception as error:  # each decoder has errors of its own
            problem = error
        yield path, problem


def check_images(
    dataset: BaseDataset,
    most: int,
    check: Callable[[dict], object] = bool,
) -> None:
    """Refuse a set of which some images cannot be used.

    Args:
        dataset (BaseDataset): See :func:`look_at`.
        most (int): See there.
        check (Callable[[dict], object]): See there.

    Raises:
        OSError: Counts and names them.
    """
    found = [*look_at(dataset, most, check)]
    if wrong := [f'{path}: {problem}' for path, problem in found if problem]:
        raise OSError(
            f'{len(wrong)} of {len(found)} images that were tried cannot be '
            f'used: {listed(wrong, 2)}'
        )
