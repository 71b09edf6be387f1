# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Order and augmentations of data, fixed by seed, epoch and sample."""

import random
from collections.abc import Iterator, Sized
from itertools import islice

import mmengine.dataset
import numpy as np
import torch
from mmcv.transforms import BaseTransform
from mmengine.dataset import DefaultSampler
from torch.utils.data import BatchSampler, Sampler

from mmmoca.registry import DATA_SAMPLERS, DATASETS, TRANSFORMS


class SeededIndex(int):
    """A sample's index, with the seed of the sample's augmentation."""

    seed: int

    def __new__(cls, index: int, seed: int) -> 'SeededIndex':
        """Make the index."""
        self = super().__new__(cls, index)
        self.seed = seed
        return self

    def __reduce__(self) -> tuple:
        """Keep the seed on the way to a worker process."""
        return SeededIndex, (int(self), self.seed)

    def __sub__(self, other: int) -> 'SeededIndex':
        """Keep the seed in a part of a ``ConcatDataset``."""
        return SeededIndex(int(self) - other, self.seed)

    def __mod__(self, other: int) -> 'SeededIndex':
        """Keep the seed in a ``RepeatDataset``."""
        return SeededIndex(int(self) % other, self.seed)


def members(dataset: Sized) -> Iterator[Sized]:
    """Yield the data sets that have a pipeline; unwrap MMEngine's wrappers."""
    if hasattr(getattr(dataset, 'pipeline', None), 'transforms'):
        yield dataset
    elif hasattr(dataset, 'dataset'):
        yield from members(dataset.dataset)
    else:
        for part in getattr(dataset, 'datasets', ()):
            yield from members(part)


def evenly_spaced_rows(number: int, total: int) -> list[int]:
    """Return at most ``number`` of ``total`` rows, evenly spaced."""
    number = min(number, total)
    return np.linspace(0, total - 1, number).round().astype(int).tolist()


@DATA_SAMPLERS.register_module()
class SeededSampler(DefaultSampler):
    """A :class:`DefaultSampler` whose indices carry seeds.

    With :class:`SeedTransforms` first in the pipeline, the views of a sample
    depend only on the run's seed, the epoch and the sample, not on the number
    of workers or on what they loaded before. The order of the samples, over
    all ranks together, does not depend on the number of ranks. So a run
    resumes exactly, even in the middle of an epoch, without loading the
    samples that it skips.
    :class:`~mmmoca.engine.ReproducibilityHook` sets ``seed`` and ``infinite``,
    and calls :meth:`skip`.

    Args:
        dataset (Sized): The data set.
        shuffle (bool): Whether to shuffle. Defaults to True.
        seed (int | None): Seed of the order and of the views. Defaults to
            None: a random seed, the same on every rank.
        infinite (bool): Continue with the next epoch forever, for
            iteration-based loops. Defaults to False.
        drop_last (bool): Whether the last samples are left out, so that all
            ranks get the same number. False repeats the first samples instead.
            If the loader also has ``drop_last``, the global batches of an
            epoch do not depend on the number of ranks, as long as their size
            stays the same. Defaults to False.

    Raises:
        ValueError: If the data set, or one that it wraps, has a pipeline
            without :class:`SeedTransforms`.
    """

    def __init__(
        self,
        dataset: Sized,
        shuffle: bool = True,
        seed: int | None = None,
        infinite: bool = False,
        drop_last: bool = False,
    ) -> None:
        for member in members(dataset):
            transforms = member.pipeline.transforms
            if transforms and not any(
                isinstance(step, SeedTransforms) for step in transforms
            ):
                raise ValueError(
                    'the pipeline has no mmmoca.SeedTransforms, so a resumed '
                    'run would see other views: put it first, or set '
                    'sampler.type=DefaultSampler in the loader'
                )
        super().__init__(dataset, shuffle=shuffle, seed=seed)
        self.infinite = infinite
        if drop_last:
            self.num_samples = len(dataset) // self.world_size
            self.total_size = self.num_samples * self.world_size
        self._to_skip = 0

    def skip(self, num_samples: int) -> None:
        """Skip samples at the start of the next iteration over the sampler.

        Args:
            num_samples (int): Samples of this rank that a resumed run has
                already seen.
        """
        self._to_skip = num_samples

    def __iter__(self) -> Iterator[SeededIndex]:
        """Iterate over this rank's indices, except the skipped ones."""
        skip, self._to_skip = self._to_skip, 0
        size, step = len(self.dataset), self.world_size
        epoch, start = self.epoch, self.rank + skip * step
        if self.infinite:
            epoch, start = epoch + start // size, start % size
        while True:
            seeds = np.random.SeedSequence((self.seed, epoch)).generate_state(
                size
            )
            generator = torch.Generator().manual_seed(self.seed + epoch)
            order = torch.arange(size)
            if self.shuffle:
                order = torch.randperm(size, generator=generator)
            # A finite sampler repeats or drops samples, so that all ranks get
            # the same number. An infinite one continues with the next epoch
            # instead.
            end = size if self.infinite else self.total_size
            places = torch.from_numpy(np.arange(start, end, step))
            # One list of all indices would take 40 bytes per sample.
            for part in order[places % size].split(4096):
                for index in part.tolist():
                    yield SeededIndex(index, int(seeds[index]))
            if not self.infinite:
                return
            epoch, start = epoch + 1, start + len(places) * step - size


@DATA_SAMPLERS.register_module()
class ResumableBatchSampler(BatchSampler):
    """Wrap a batch sampler, and skip the batches that a run has seen.

    A batch sampler that groups images holds some of them back. So the number
    of batches does not tell which samples to skip. This class draws the
    batches again, without loading them. If a run resumes on another number of
    ranks, the groups differ: a few images of the epoch occur twice or not at
    all.
    :class:`~mmmoca.engine.ReproducibilityHook` calls :meth:`skip`.

    Args:
        sampler (Sampler): The sampler, such as :class:`SeededSampler`.
        batch_size (int): Samples per batch.
        batch_sampler (dict): Config of the batch sampler, such as
            ``dict(type='mmdet.AspectRatioBatchSampler')``.
    """

    def __init__(
        self, sampler: Sampler, batch_size: int, batch_sampler: dict
    ) -> None:
        self.batches = DATA_SAMPLERS.build(
            batch_sampler,
            default_args=dict(sampler=sampler, batch_size=batch_size),
        )
        self.sampler = sampler
        self.batch_size = batch_size
        self._to_skip = 0

    def skip(self, num_batches: int) -> None:
        """Skip batches at the start of the next iteration."""
        self._to_skip = num_batches

    def __iter__(self) -> Iterator[list[int]]:
        """Iterate over the batches, except the skipped ones."""
        # A loader with workers asks for two iterators, and reads only the
        # second one. In a generator, this code runs when the first batch is
        # read, so only that iterator skips batches.
        skip, self._to_skip = self._to_skip, 0
        yield from islice(self.batches, skip, None)

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return len(self.batches)


@DATASETS.register_module()
class ClassBalancedDataset(mmengine.dataset.ClassBalancedDataset):
    """A data set that repeats the images of rare classes.

    Unlike MMEngine's class of this name, it keeps the seeds of
    :class:`SeededSampler`.

    Raises:
        TypeError: If the data set does not tell the classes of its images, for
            example if it is a ``ConcatDataset``.
    """

    def full_init(self) -> None:
        """Read the classes of all images, and count how often each repeats."""
        if not hasattr(self.dataset, 'get_cat_ids'):
            raise TypeError(
                f'{type(self.dataset).__name__} does not tell the classes of '
                'its images: write a ConcatDataset of ClassBalancedDatasets, '
                'not the reverse'
            )
        super().full_init()

    def _get_ori_dataset_idx(self, idx: int) -> int:
        image = super()._get_ori_dataset_idx(idx)
        seed = getattr(idx, 'seed', None)
        return image if seed is None else SeededIndex(image, seed)


@TRANSFORMS.register_module()
class SeedTransforms(BaseTransform):
    """Seed the random generators that the following transforms use.

    Put it first in the pipeline. Without :class:`SeededSampler` it leaves the
    generators as they are.

    **Required Keys:** ``sample_idx``.
    """

    def transform(self, results: dict) -> dict:
        """Seed Python's, NumPy's and PyTorch's generators on the CPU."""
        seed = getattr(results['sample_idx'], 'seed', None)
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed)
            # torch.manual_seed would visit every device: 0.2 ms per image.
            torch.default_generator.manual_seed(seed)
        return results
