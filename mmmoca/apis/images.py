# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images from files and from memory, as an encoder takes them."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from mmpretrain.registry import TRANSFORMS
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from mmmoca.checkpoints import Preprocessing
from mmmoca.datasets import LoadBands
from mmmoca.datasets.image_places import image_set_of
from mmmoca.datasets.image_set import EXTENSIONS

__all__ = ['Images', 'image_batches', 'open_images', 'pipeline_of']

# What of the loader of a recorded config decides on what it gives; its types
# are those that are named here, as a file could name any function.
_LOADER = ('color_type', 'imdecode_backend', 'to_float32')
_BANDS = ('channels', 'channel_axis', 'nodata', 'fill')


def pipeline_of(settings: Preprocessing) -> list[dict]:
    """The transforms of k-NN evaluation, for one encoder.

    Args:
        settings: How its images are prepared.

    Returns:
        Configs of transforms: loading, resizing, cropping.
    """
    recorded = settings.loader
    bands = str(recorded.get('type')).endswith('LoadBands')
    loader = dict(type='mmmoca.LoadImage', skip_unreadable=False)
    loader |= {k: recorded[k] for k in _LOADER if k in recorded}
    if bands or settings.channel_order == 'bands':
        loader = dict(type='mmmoca.LoadBands', channels=len(settings.mean))
        loader |= {k: recorded[k] for k in _BANDS if k in recorded}
        loader['skip_unreadable'] = False
    elif settings.channel_order == 'grey':
        loader.setdefault('color_type', 'grayscale')
    height, width = settings.img_size
    resize = dict(interpolation=settings.interpolation)
    if settings.resize is None:
        resize |= dict(scale=(width, height))
    else:
        # It covers the crop.
        resize |= dict(scale=max(settings.resize, height))
    if loader['type'] == 'mmmoca.LoadBands' or loader.get('to_float32'):
        resize |= dict(type='mmmoca.ResizeBands')
    elif settings.resize is None:
        resize |= dict(type='Resize', backend=settings.backend)
    else:
        resize |= dict(type='ResizeEdge', backend=settings.backend)
    return [
        loader,
        resize,
        dict(type='CenterCrop', crop_size=(width, height)),
    ]


class Images(Dataset):
    """Images of equal size, or the error of one that cannot be read.

    Args:
        sources: Paths, URLs of MMEngine's file backends, PIL images, or
            arrays.
        pipeline: Configs of transforms, the loader first.
    """

    def __init__(self, sources: Sequence[Any], pipeline: list[dict]) -> None:
        self.sources = sources
        self.loader, *self.transforms = map(TRANSFORMS.build, pipeline)

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> Tensor | Exception:
        """An image, (C, H, W), not normalised."""
        try:
            results = self._load(index)
            for transform in self.transforms:
                results = transform(results)
        except (OSError, TypeError, ValueError) as error:
            # Raised in a worker it would bring the worker's traceback along.
            return error
        img = np.atleast_3d(results['img'])
        return torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1)))

    def path(self, index: int) -> str | None:
        """Path or URL of an image, None of one in memory."""
        source = self.sources[index]
        return source if isinstance(source, str) else None

    def _load(self, index: int) -> dict:
        source = self.sources[index]
        if isinstance(source, str):
            return self.loader(dict(img_path=source))
        img = self._as_loaded(source, f'image {index}')
        return dict(img=img, img_shape=img.shape[:2], ori_shape=img.shape[:2])

    def _as_loaded(
        self, image: Image.Image | np.ndarray, name: str
    ) -> np.ndarray:
        """An image of memory as the loader gives it of a file."""
        if isinstance(self.loader, LoadBands):
            return self.loader.check(np.asarray(image), name)
        if isinstance(image, Image.Image):
            image = ImageOps.exif_transpose(image)
            # Of 16 bits or more: as RGB, PIL would clip them at 255.
            if image.mode[0] not in 'IF':
                image = image.convert('RGB')
            image = np.asarray(image)
        if image.dtype != np.uint8 or image.ndim not in (2, 3):
            raise TypeError(
                f'{name} is {image.dtype} of the shape {image.shape}: give '
                'uint8 arrays, (H, W, 3) in RGB or (H, W), or a normalised '
                'batch as a tensor, (B, C, H, W)'
            )
        if image.ndim == 2 or image.shape[2] == 1:
            image = np.repeat(np.atleast_3d(image), 3, axis=2)
        if image.shape[2] not in (3, 4):
            raise ValueError(
                f'{name} has {image.shape[2]} channels: give (H, W, 3) in RGB'
            )
        if 'grayscale' in self.loader.color_type:
            return np.array(Image.fromarray(image[..., :3]).convert('L'))
        img = np.ascontiguousarray(image[..., 2::-1])  # RGB(A) -> BGR
        return img.astype(np.float32) if self.loader.to_float32 else img


def open_images(images: Any, pipeline: list[dict]) -> Images:
    """Find images.

    Args:
        images: A folder of images at any depth, or of shards, or a data set
            of Hugging Face; a file; a PIL image, an array; or a list of
            files, PIL images or arrays.
        pipeline: See :func:`pipeline_of`.

    Returns:
        The images.

    Raises:
        FileNotFoundError: If there is no such file or no image.
        OSError: If none of the images of a folder can be read.
        TypeError: If it is none of these.
        ValueError: If a list is empty.
    """
    if isinstance(images, (str, os.PathLike)):
        place = os.path.expanduser(os.fspath(images))
        if os.path.isfile(place) and not place.endswith('.tar'):
            return Images([place], pipeline)
        if not (os.path.exists(place) or '{' in place):
            raise FileNotFoundError(f'there is no file or folder {place}')
        return _stored_images(place, pipeline)
    if isinstance(images, Image.Image) or (
        isinstance(images, np.ndarray) and images.ndim < 4
    ):
        images = [images]
    if not isinstance(images, (Sequence, np.ndarray)):
        raise TypeError(
            'images are a folder, a file, a PIL image, an array, a list of '
            'these, or a normalised tensor (B, C, H, W), but got '
            f'{type(images).__name__}'
        )
    sources = [
        os.fspath(image) if isinstance(image, os.PathLike) else image
        for image in images
    ]
    if not sources:
        raise ValueError('there are no images in an empty list')
    for image in sources:
        if not isinstance(image, (str, Image.Image, np.ndarray)):
            raise TypeError(
                'a list of images has paths, PIL images or arrays, but got '
                f'{type(image).__name__}'
            )
    return Images(sources, pipeline)


class _Paths(Sequence):
    """Paths of the images of a data set."""

    def __init__(self, samples: Sequence[dict]) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> str:
        return self._samples[index]['img_path']


def _stored_images(place: str, pipeline: list[dict]) -> Images:
    bands = pipeline[0]['type'].endswith('LoadBands')
    dataset = image_set_of(place)(
        place,
        with_label=False,
        # Its loader says whether images can be read.
        pipeline=pipeline,
        extensions=(*EXTENSIONS, '.npy') if bands else EXTENSIONS,
        test_mode=True,
    )
    return Images(_Paths(dataset.data_list), pipeline)


class _Batches:
    """Batches of some rows, each a range."""

    def __init__(self, spans: Sequence[range], batch_size: int) -> None:
        self.spans, self.batch_size = spans, batch_size

    def __iter__(self) -> Iterator[range]:
        for span in self.spans:
            for start in range(0, len(span), self.batch_size):
                yield span[start : start + self.batch_size]

    def __len__(self) -> int:
        return sum(-(-len(span) // self.batch_size) for span in self.spans)


def _collate(images: list) -> tuple[Tensor | None, dict[int, Exception]]:
    errors = {i: x for i, x in enumerate(images) if isinstance(x, Exception)}
    good = [image for image in images if isinstance(image, Tensor)]
    return (torch.stack(good) if good else None), errors


def image_batches(
    images: Images,
    batch_size: int,
    num_workers: int | None = None,
    spans: Sequence[range] | None = None,
    pin_memory: bool = False,
) -> Iterator[tuple[range, Tensor | None, dict[int, Exception]]]:
    """Read images batch by batch.

    Args:
        images: The images.
        batch_size: Images at a time.
        num_workers: Processes that read; by default as many as there are
            cores, up to 8, where there is more than a batch.
        spans: Rows to read; no batch has rows of two of them. By default
            all.
        pin_memory: Whether to pin it, for a GPU.

    Yields:
        Rows; their images that could be read, (n, C, H, W), None if none;
        and what is wrong with the others, by their place in the batch.

    Raises:
        ValueError: If ``batch_size`` is below 1.
    """
    if batch_size < 1:
        raise ValueError(f'batch_size must be 1 or more but got {batch_size}')
    if spans is None:
        spans = [range(len(images))]
    batches = _Batches(spans, batch_size)
    if num_workers is None:
        num_workers = min(8, os.cpu_count() or 1) if len(batches) > 1 else 0
    loader = DataLoader(
        images,
        batch_sampler=batches,
        num_workers=num_workers,
        collate_fn=_collate,
        pin_memory=pin_memory,
    )
    for rows, (inputs, errors) in zip(batches, loader):
        yield rows, inputs, errors
