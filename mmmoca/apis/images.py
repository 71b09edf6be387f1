# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images from files and from memory, prepared for an encoder."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from mmpretrain.registry import TRANSFORMS
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import Dataset

from mmmoca.checkpoints import Preprocessing
from mmmoca.datasets import LoadBands
from mmmoca.datasets.file_endings import BAND_EXTENSIONS, EXTENSIONS
from mmmoca.datasets.image_places import image_set_of
from mmmoca.datasets.image_set import ImageSet


def pipeline_of(settings: Preprocessing) -> list[dict]:
    """The transforms of k-NN evaluation, for one encoder.

    Args:
        settings: How its images are prepared.

    Returns:
        Configs of transforms: loading, resizing, cropping.
    """
    recorded = dict(settings.loader)
    # Not built as it is, since a file could name any function there.
    kind = str(recorded.pop('type', None))
    # OpenCV gives the channels of a file in another order than LoadBands.
    unchanged = (
        recorded.get('color_type') == 'unchanged'
        and recorded.get('imdecode_backend') != 'tifffile'
    )
    bands = kind.endswith('LoadBands') or (
        settings.channel_order == 'bands' and not unchanged
    )
    if bands:
        loader = dict(type='mmmoca.LoadBands', channels=len(settings.mean))
        loader |= recorded if kind.endswith('LoadBands') else {}
    else:
        loader = dict(type='mmmoca.LoadImage')
        if settings.channel_order == 'grey':
            loader['color_type'] = 'grayscale'
        loader |= recorded
    height, width = settings.img_size
    # The resized image covers the crop.
    edge = settings.resize and max(settings.resize, height)
    step = dict(
        scale=edge or (width, height), interpolation=settings.interpolation
    )
    if bands or loader.get('to_float32'):
        step['type'] = 'mmmoca.ResizeBands'
    else:
        step['type'] = 'ResizeEdge' if edge else 'Resize'
        step['backend'] = settings.backend
    return [
        dict(loader, skip_unreadable=False),
        step,
        dict(type='CenterCrop', crop_size=(width, height)),
    ]


class Images(Dataset):
    """Images of equal size, or the error of one that cannot be read.

    Args:
        sources: Paths, URLs of MMEngine's file backends, PIL images, arrays,
            or what a data set says of an image.
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
            path = self.path(index)
            if path is None:
                img = self._of_memory(self.sources[index], f'image {index}')
                results = dict(img=img, img_shape=img.shape[:2])
            else:
                results = self.loader(dict(img_path=path))
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
        if isinstance(source, dict):
            return source['img_path']
        return source if isinstance(source, str) else None

    def _of_memory(
        self, image: Image.Image | np.ndarray, name: str
    ) -> np.ndarray:
        """An image in memory, in the form in which the loader gives a file."""
        if isinstance(self.loader, LoadBands):
            return self.loader.check(np.asarray(image), name)
        if isinstance(image, Image.Image):
            image = ImageOps.exif_transpose(image)
            # Of 16 bits or more: as RGB, PIL would clip them at 255.
            if image.mode[0] not in 'IF':
                image = image.convert('RGB')
        image = np.atleast_3d(image)
        sizes = [(1,), (3,), (4,)]
        fits = image.shape[2:] in sizes and image.size > 0
        if image.dtype != np.uint8 or not fits:
            raise TypeError(
                f'{name} is {image.dtype} of the shape {image.shape}: give '
                'uint8 arrays, (H, W, 3) in RGB or (H, W), or a normalised '
                'batch as a tensor, (B, C, H, W)'
            )
        channels = image.shape[2]
        if self.loader.color_type == 'unchanged':
            kept = [2, 1, 0, 3][:channels] if channels > 1 else [0]
            img = image[..., kept]  # RGB(A) -> BGR(A)
        else:
            if channels == 1:
                image = np.repeat(image, 3, axis=2)
            img = image[..., 2::-1]  # RGB(A) -> BGR
        if 'grayscale' in self.loader.color_type:
            img = np.array(Image.fromarray(image[..., :3]).convert('L'))
        img = np.ascontiguousarray(img)
        return img.astype(np.float32) if self.loader.to_float32 else img


def image_set(
    place: str, pipeline: list[dict], with_label: bool = False
) -> ImageSet:
    """The images of a folder, of shards, or of a data set of Hugging Face.

    Args:
        place: The folder, or a pattern of shards.
        pipeline: See :func:`pipeline_of`. Its loader says whether images can
            be read.
        with_label: Whether they have labels.

    Raises:
        FileNotFoundError: If there is no image.
        OSError: If none of the images can be read.
    """
    place = os.path.expanduser(place)
    if not (os.path.exists(place) or '{' in place):
        raise FileNotFoundError(f'there is no file or folder {place}')
    bands = pipeline[0]['type'].endswith('LoadBands')
    return image_set_of(place)(
        place,
        with_label=with_label,
        pipeline=pipeline,
        extensions=BAND_EXTENSIONS if bands else EXTENSIONS,
        test_mode=True,
    )


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
        ValueError: If a list is empty, or its first file has 16 bits a
            channel and the loader reads 8.
    """
    if isinstance(images, Images):
        return images
    if isinstance(images, (str, os.PathLike)):
        place = os.path.expanduser(os.fspath(images))
        if place.endswith('.tar') or not os.path.isfile(place):
            return Images(image_set(place, pipeline).data_list, pipeline)
        images = [place]
    if not isinstance(images, Sequence) and getattr(images, 'ndim', 0) < 4:
        images = [images]
    sources = [
        os.path.expanduser(image)
        if isinstance(image, (str, os.PathLike))
        else image
        for image in images
    ]
    if not sources:
        raise ValueError('there are no images in an empty list')
    for image in sources:
        if not isinstance(image, (str, Image.Image, np.ndarray)):
            raise TypeError(
                'images are a folder, files, PIL images, arrays, or a '
                'normalised tensor (B, C, H, W), but got '
                f'{type(image).__name__}'
            )
    return Images(sources, pipeline)


def collate_images(
    images: list[Tensor | Exception],
) -> tuple[Tensor | None, dict[int, Exception]]:
    """Join the images of a batch that could be read.

    Args:
        images: What :class:`Images` gave.

    Returns:
        The images, (n, C, H, W), None if there is none; and what is wrong
        with the others, by their place in the batch.
    """
    errors = {i: x for i, x in enumerate(images) if isinstance(x, Exception)}
    good = [image for image in images if isinstance(image, Tensor)]
    return (torch.stack(good) if good else None), errors
