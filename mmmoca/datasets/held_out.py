# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from collections.abc import Sequence
from functools import partial
from itertools import accumulate

from mmengine.dataset import BaseDataset
from torch.utils.data import ConcatDataset

from mmmoca.config_parts import parts_of
from mmmoca.registry import DATASETS

from .seeding import evenly_spaced_rows


@DATASETS.register_module(name='HeldOut')
def held_out(
    dataset: dict, every: int = 10, rest: bool = False
) -> BaseDataset:
    """Return every n-th image of a data set, or all other images.

    Registered as ``mmmoca.HeldOut``. Images that are held out of the training
    are used to choose the best classifier, see
    :class:`~mmmoca.evaluation.LinearProbeAccuracy`. The pipeline gives these
    images ``held_out=True``. List this key in ``meta_keys`` of ``PackInputs``.

    Args:
        dataset (dict): Config of a data set, not of a wrapper.
        every (int): n. The images with the indices n - 1, 2 n - 1 and so on
            are held out. Defaults to 10.
        rest (bool): Whether to return the images that are not held out.
            Defaults to False.

    Returns:
        BaseDataset: A part of the data set.

    Raises:
        ValueError: If ``every`` is below 2 or above the number of images.
    """
    whole = DATASETS.build(dataset)
    if not 2 <= every <= len(whole):
        raise ValueError(
            f'every={every} must be from 2 to {len(whole)}, the '
            'number of images'
        )
    chosen = [i for i in range(len(whole)) if (i % every < every - 1) == rest]
    part = whole.get_subset(chosen)
    if not rest:
        part.pipeline.transforms.insert(0, partial(dict, held_out=True))
    return part


@DATASETS.register_module(name='EvenlySpaced')
def evenly_spaced(
    dataset: dict | BaseDataset | Sequence[dict], number: int
) -> 'BaseDataset | NumberedSets':
    """Return evenly spaced images of one or several data sets.

    Registered as ``mmmoca.EvenlySpaced``.

    Args:
        dataset (dict | BaseDataset | Sequence[dict]): A data set (not a
            wrapper), its config, or a list of configs.
        number (int): Largest number of images.

    Returns:
        BaseDataset | NumberedSets: The chosen images; ``NumberedSets`` if they
        come from several data sets.
    """
    if isinstance(dataset, BaseDataset):
        wholes = [dataset]
    else:
        wholes = [*map(DATASETS.build, parts_of(dataset))]
    ends = [*accumulate(map(len, wholes))]
    rows = evenly_spaced_rows(number, ends[-1])
    parts = []
    for whole, end in zip(wholes, ends):
        begin = end - len(whole)
        own = [row - begin for row in rows if begin <= row < end]
        if own:
            part = whole.get_subset(own)
            before = sum(map(len, parts))
            if before:
                number_on = partial(_number_on, before)
                part.pipeline.transforms.insert(0, number_on)
            parts.append(part)
    if len(parts) == 1:
        return parts[0]
    return NumberedSets(parts)


class NumberedSets(ConcatDataset):
    """Joined data sets in which no two images share a ``sample_idx``."""

    @property
    def metainfo(self) -> dict:
        """dict: The first data set's metainfo, which MMEngine's loops read."""
        return self.datasets[0].metainfo


def _number_on(before: int, results: dict) -> dict:
    return results | dict(sample_idx=results['sample_idx'] + before)
