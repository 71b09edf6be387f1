# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images from files and from memory, prepared for an encoder."""

import io
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from mmcv.transforms import BaseTransform
from mmpretrain.registry import TRANSFORMS
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from mmmoca.datasets import LoadBands
from mmmoca.datasets.hf_images import HFRows
from mmmoca.datasets.image_set import judging
from mmmoca.evaluation.memory import group_limits


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
    """

    def __init__(self, sources: Sequence[Any], pipeline: list[dict]) -> None:
        self.sources = sources
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
        """An image, (C, H, W), not normalised."""
        try:
            source = self.sources[index]
            path, name = self.path(index), f'image {index}'
            if path is not None:
                results = self.loader(dict(img_path=path))
            else:
                if not isinstance(source, bytes):
                    source = self._file_of(source, name)
                img = self.loader.read_bytes(source, name)
                results = dict(img=img, img_shape=img.shape[:2])
            for transform in self.transforms:
                results = transform(results)
            img = np.atleast_3d(results['img'])
        except (OSError, TypeError, ValueError) as error:
            # Raised in a worker it would bring the worker's traceback along.
            return error
        return torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1)))

    def path(self, index: int) -> str | None:
        """Path or URL of an image, None of one in memory."""
        if isinstance(self.sources, HFRows):
            return None
        source = self.sources[index]
        if isinstance(source, dict):
            return source['img_path']
        return source if isinstance(source, str) else None

    def _file_of(self, image: Image.Image | np.ndarray, name: str) -> bytes:
        """A file of an image in memory, for the loader."""
        file = io.BytesIO()
        if isinstance(self.loader, LoadBands):
            if isinstance(image, Image.Image) and image.mode in ('1', 'P'):
                # As OpenCV decodes such files.
                image = image.convert('L' if image.mode == '1' else 'RGB')
            np.save(file, np.asarray(image), allow_pickle=False)
            return file.getvalue()
        if isinstance(image, np.ndarray):
            if image.shape[2:] == (1,):
                image = image[..., 0]
            known = image.ndim > 1 and image.shape[2:] in ((), (3,), (4,))
            if image.dtype != np.uint8 or not (known and image.size):
                raise TypeError(
                    f'{name} is {image.dtype} of the shape {image.shape}: '
                    'give uint8 arrays, (H, W, 3) in RGB or (H, W), or a '
                    'normalised batch as a tensor, (B, C, H, W)'
                )
            image = Image.fromarray(image)
        # Of 16 bits or more: as RGB, PIL would clip them at 255.
        if image.mode[0] in 'IF':
            raise TypeError(
                f'{name} has the mode {image.mode} of PIL: convert it to 8 '
                'bits'
            )
        if self.loader.color_type in ('color', 'grayscale'):
            image = ImageOps.exif_transpose(image)
        image.convert('RGB').save(file, 'BMP')
        return file.getvalue()


def collate(
    images: list[Tensor | Exception],
) -> tuple[Tensor | None, dict[int, Exception]]:
    """Make a batch of the images that could be read.

    Args:
        images (list[Tensor | Exception]): What :class:`Images` gives.

    Returns:
        tuple[Tensor | None, dict[int, Exception]]: The images, (n, C, H, W),
        None if there is none; and what is wrong with the others, by place.
    """
    errors = {i: x for i, x in enumerate(images) if isinstance(x, Exception)}
    good = [image for image in images if isinstance(image, Tensor)]
    # In a worker it fills shared memory here, where an error is seen.
    return (default_collate(good) if good else None), errors


def usable_cores() -> int:
    """Cores that this process may use: its affinity, quotas of its groups."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1
    quotas = [-(-quota // period) for quota, period in group_limits('cpu.max')]
    return min([cores, *quotas])
