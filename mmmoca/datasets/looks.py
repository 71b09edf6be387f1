# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""A look at some images before a run."""

import copy
from collections.abc import Callable

import numpy as np
from mmcv.transforms import LoadImageFromFile
from mmengine.dataset import Compose

from mmmoca.messages import listed


def look_at_some(
    pipeline: Compose,
    info_of: Callable[[int], dict],
    size: int,
    most: int,
    check: Callable[[dict], object] = bool,
) -> None:
    """Load some images of a set, evenly spaced, by its pipeline's loader.

    Args:
        pipeline (Compose): The pipeline. One without a loader has no files.
        info_of (Callable[[int], dict]): What the set says of an image, a new
            dict with ``img_path``.
        size (int): Number of images of the set.
        most (int): How many to look at, at most.
        check (Callable[[dict], object]): Raises for what is wrong with a
            loaded image.

    Raises:
        OSError: If some cannot be used. Counts and names them.
    """
    if wrong := unusable(pipeline, info_of, size, most, check):
        raise OSError(
            f'{len(wrong)} of {min(most, size)} images that were tried cannot '
            f'be used: {listed(wrong, 2)}'
        )


def unusable(
    pipeline: Compose,
    info_of: Callable[[int], dict],
    size: int,
    most: int,
    check: Callable[[dict], object] = bool,
) -> list[str]:
    """Which images of those that :func:`look_at_some` looks at are wrong.

    Args:
        pipeline (Compose): See there.
        info_of (Callable[[int], dict]): See there.
        size (int): See there.
        most (int): See there.
        check (Callable[[dict], object]): See there.

    Returns:
        list[str]: Their files, and why.
    """
    steps, wrong, number = pipeline.transforms, [], min(most, size)
    load = next((s for s in steps if isinstance(s, LoadImageFromFile)), None)
    if load is None:
        return []
    load = copy.copy(load)
    load.skip_unreadable = False  # of our loader
    for index in np.linspace(0, size - 1, number).astype(int):
        info = info_of(index)
        path = info['img_path']
        try:
            check(load(info))
        except Exception as error:  # each decoder has errors of its own
            wrong.append(f'{path}: {error}')
    return wrong
