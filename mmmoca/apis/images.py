# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Reads images from files or memory, and prepares them for an encoder."""

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from mmcv.transforms import BaseTransform
from mmpretrain.registry import TRANSFORMS
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from mmmoca.datasets import LoadBands
from mmmoca.datasets.headers import TURNED
from mmmoca.datasets.hf_images import HFRows
from mmmoca.datasets.image_set import judging
from mmmoca.datasets.seeding import SeededIndex
from mmmoca.evaluation.memory import group_limits
from mmmoca.messages import listed, warn


def build_transform(config: dict) -> BaseTransform:
    """Build a transform of MMPreTrain, MMCV or this package.

    ``TRANSFORMS.build`` would search for names in MMEngine's current scope,
    which any other package in the process may have set.
    """
    config = {k: v for k, v in config.items() if k != '_scope_'}
    return TRANSFORMS.get(config.pop('type'))(**config)


class Images(Dataset):
    """A data set of images of equal size; an unreadable one gives its error.

    Args:
        sources (Sequence[Any]): Paths, URLs of MMEngine's file backends,
            contents of files as bytes, PIL images, arrays, or a data set's
            dicts, which have ``img_path``.
        pipeline (list[dict]): Configs of transforms, the loader first.
        seed (int, optional): Seed of :class:`SeedTransforms` in the pipeline.
            It is mixed with the index of each image. Defaults to None.

    Attributes:
        odd (int): Number of images read so far that stand out.
        oddities (Counter[str]): Number of images for each reason to stand
            out.
    """

    def __init__(
        self,
        sources: Sequence[Any],
        pipeline: list[dict],
        seed: int | None = None,
    ) -> None:
        self.sources, self.seed = sources, seed
        self.odd, self.oddities = 0, Counter[str]()
        loader, *self.transforms = map(build_transform, pipeline)
        self.loader = judging(loader)
        self.loader.skip_unreadable = False
        if isinstance(self.loader, LoadBands):
            # This stops at the first usable image. The loader then expects
            # that image's number of bits in every worker.
            any(isinstance(self[i], Tensor) for i in range(len(self)))

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> Tensor | Exception:
        """Return an image, (C, H, W), not normalised; or its error."""
        return self.prepare(index)[0]

    def prepare(
        self, index: int
    ) -> tuple[Tensor | Exception, tuple[str, ...]]:
        """Return an image or its error, and the reasons why it stands out."""
        try:
            path, name = self.path(index), f'image {index}'
            if path is not None:
                results = self.loader(dict(img_path=path))
            else:
                img, header = self.loader.load(self.sources[index], name)
                results = dict(img=img, img_shape=img.shape[:2])
                results['oddities'] = header.oddities
            # The loaders also report a rotation by EXIF, which is not odd.
            oddities = results.get('oddities', ())
            oddities = tuple(o for o in oddities if o != TURNED)
            if self.seed is not None:
                mixed = np.random.SeedSequence((self.seed, index))
                seed = int(mixed.generate_state(1)[0])
                results['sample_idx'] = SeededIndex(index, seed)
            for transform in self.transforms:
                results = transform(results)
            img = np.atleast_3d(results['img'])
        except (OSError, TypeError, ValueError) as error:
            # An error raised in a worker would include the worker's traceback.
            return error, ()
        pixels = np.ascontiguousarray(img.transpose(2, 0, 1))
        return torch.from_numpy(pixels), oddities

    def say_oddities(self) -> None:
        """Warn how many of the images that were read stand out, and why."""
        if self.oddities:
            kinds = [f'{n} {kind}' for kind, n in self.oddities.most_common()]
            warn(
                f'{self.odd} of {len(self)} images are odd: {listed(kinds)} '
                '(`mmmoca look DATA` names one of each kind)'
            )

    def path(self, index: int) -> str | None:
        """Return the path or URL of an image, or None if it is in memory."""
        if isinstance(self.sources, HFRows):
            return None
        source = self.sources[index]
        if isinstance(source, dict):
            return source['img_path']
        return source if isinstance(source, str) else None


class PreparedImages(Dataset):
    """A data set for a data loader: the results of :meth:`Images.prepare`.

    Args:
        images (Images): The images.
    """

    def __init__(self, images: Images) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(
        self, index: int
    ) -> tuple[Tensor | Exception, tuple[str, ...]]:
        """See :meth:`Images.prepare`."""
        return self.images.prepare(index)


def collate(
    items: list[tuple[Tensor | Exception, tuple[str, ...]]],
) -> tuple[Tensor | None, dict[int, Exception], list[tuple[str, ...]]]:
    """Make a batch of the images that could be read.

    Args:
        items (list[tuple[Tensor | Exception, tuple[str, ...]]]): Results of
            :meth:`Images.prepare`.

    Returns:
        tuple[Tensor | None, dict[int, Exception], list[tuple[str, ...]]]: The
        images that could be read, (n, C, H, W), or None if there are none;
        the errors of the other images, by their index in ``items``; and for
        each image the reasons why it stands out.
    """
    images, oddities = zip(*items)
    errors = {i: x for i, x in enumerate(images) if isinstance(x, Exception)}
    good = [image for image in images if isinstance(image, Tensor)]
    # In a worker this allocates shared memory, and raises an error if there
    # is none left.
    return (default_collate(good) if good else None), errors, list(oddities)


def usable_cores() -> int:
    """Count the CPU cores that affinity and quotas leave this process."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1
    quotas = [-(-quota // period) for quota, period in group_limits('cpu.max')]
    return min([cores, *quotas])
