# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images from files and from memory, prepared for an encoder."""

import os
import warnings
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
from mmmoca.messages import DataWarning, listed


def build_transform(config: dict) -> BaseTransform:
    """Build a transform of MMPreTrain, of MMCV or ours.

    ``TRANSFORMS.build`` would look names up in MMEngine's current scope,
    which any package of the process may have set.
    """
    config = {k: v for k, v in config.items() if k != '_scope_'}
    return TRANSFORMS.get(config.pop('type'))(**config)


class Images(Dataset):
    """Images of equal size, or the error of one that cannot be read.

    Args:
        sources (Sequence[Any]): Paths, URLs of MMEngine's file backends,
            contents of files, PIL images, arrays, or what a data set says of
            an image.
        pipeline (list[dict]): Configs of transforms, the loader first.
        seed (int, optional): Seed of :class:`SeedTransforms` in the pipeline,
            mixed with the index of each image. Defaults to None.

    Attributes:
        odd (int): Number of images that stand out, of those that were read.
        oddities (Counter[str]): How many do, and why.
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
            # The first that can be used tells the bits that each worker
            # expects.
            any(isinstance(self[i], Tensor) for i in range(len(self)))

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> Tensor | Exception:
        """Return an image, (C, H, W), not normalised."""
        return self.prepare(index)[0]

    def prepare(
        self, index: int
    ) -> tuple[Tensor | Exception, tuple[str, ...]]:
        """Return an image or its error, and what is odd about it."""
        try:
            path, name = self.path(index), f'image {index}'
            if path is not None:
                results = self.loader(dict(img_path=path))
            else:
                img, header = self.loader.load(self.sources[index], name)
                results = dict(img=img, img_shape=img.shape[:2])
                background = getattr(self.loader, 'background', None)
                results['oddities'] = header.oddities(background)
            # Our loaders give them. An image that EXIF turns is right.
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
            # Raised in a worker it would bring the worker's traceback along.
            return error, ()
        pixels = np.ascontiguousarray(img.transpose(2, 0, 1))
        return torch.from_numpy(pixels), oddities

    def say_oddities(self) -> None:
        """Warn of how many of the images that were read stand out, and why."""
        if self.oddities:
            kinds = [f'{n} {kind}' for kind, n in self.oddities.most_common()]
            warnings.warn(
                f'{self.odd} of {len(self)} images are odd: {listed(kinds)} '
                '(`mmmoca look DATA` names one of each kind)',
                DataWarning,
                stacklevel=3,
            )

    def path(self, index: int) -> str | None:
        """Return the path or URL of an image, None for one in memory."""
        if isinstance(self.sources, HFRows):
            return None
        source = self.sources[index]
        if isinstance(source, dict):
            return source['img_path']
        return source if isinstance(source, str) else None


class PreparedImages(Dataset):
    """Images as :meth:`Images.prepare` gives them, for a loader.

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
        items (list[tuple[Tensor | Exception, tuple[str, ...]]]): See
            :meth:`Images.prepare`.

    Returns:
        tuple[Tensor | None, dict[int, Exception], list[tuple[str, ...]]]: The
        images, (n, C, H, W), None if there is none; what is wrong with the
        others, by place; and what stands out of each.
    """
    images, oddities = zip(*items)
    errors = {i: x for i, x in enumerate(images) if isinstance(x, Exception)}
    good = [image for image in images if isinstance(image, Tensor)]
    # In a worker this fills shared memory, so a failure to do so is seen here.
    return (default_collate(good) if good else None), errors, list(oddities)


def usable_cores() -> int:
    """Count the cores that this process may use, by affinity and quotas."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1
    quotas = [-(-quota // period) for quota, period in group_limits('cpu.max')]
    return min([cores, *quotas])
