# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from functools import partial

from mmengine.dataset import BaseDataset

from mmmoca.registry import DATASETS

from .seeding import evenly_spaced_rows


@DATASETS.register_module(name='HeldOut')
def held_out(
    dataset: dict, every: int = 10, rest: bool = False
) -> BaseDataset:
    """Every n-th image of a data set, or all the others.

    Registered as ``mmmoca.HeldOut``. The images that are held out of a
    training choose among its classifiers, see
    :class:`~mmmoca.evaluation.LinearProbeAccuracy`: their results have
    ``held_out=True``, which ``meta_keys`` of ``PackInputs`` must name.

    Args:
        dataset (dict): Config of a data set of one file an image.
        every (int): n. Image n - 1, 2 n - 1 and so on are held out. Defaults
            to 10.
        rest (bool): Whether to take the others. Defaults to False.

    Returns:
        BaseDataset: A part of the data set.

    Raises:
        ValueError: If ``every`` is below 2, or there are fewer images.
    """
    whole = DATASETS.build(dataset)
    if not 2 <= every <= len(whole):
        raise ValueError(
            f'every={every} must be from 2 to {len(whole)}, all images'
        )
    chosen = [i for i in range(len(whole)) if (i % every < every - 1) == rest]
    part = whole.get_subset(chosen)
    if not rest:
        part.pipeline.transforms.insert(0, partial(dict, held_out=True))
    return part


@DATASETS.register_module(name='EvenlySpaced')
def evenly_spaced(dataset: dict | BaseDataset, number: int) -> BaseDataset:
    """Some images of a data set, evenly spaced.

    Registered as ``mmmoca.EvenlySpaced``.

    Args:
        dataset (dict | BaseDataset): A data set of one file an image, or its
            config.
        number (int): Images at most.

    Returns:
        BaseDataset: A part of the data set.
    """
    built = isinstance(dataset, BaseDataset)
    whole = dataset if built else DATASETS.build(dataset)
    return whole.get_subset(evenly_spaced_rows(number, len(whole)))
