# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images from files and from memory, prepared for an encoder."""

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from mmcv.transforms import BaseTransform
from mmpretrain.registry import TRANSFORMS
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import Dataset

from mmmoca.checkpoints import Preprocessing
from mmmoca.datasets import LoadBands
from mmmoca.datasets.file_endings import BAND_EXTENSIONS, EXTENSIONS
from mmmoca.datasets.hf_images import HFRows, is_opened
from mmmoca.datasets.image_places import image_set_of
from mmmoca.datasets.image_set import ImageSet, judging


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
    bands = kind.endswith('LoadBands') or (
        settings.channel_order == 'bands' and not recorded
    )
    if bands:
        loader = dict(type='mmmoca.LoadBands', channels=len(settings.mean))
    elif settings.channel_order == 'grey':
        loader = dict(type='mmmoca.LoadImage', color_type='grayscale')
    else:
        loader = dict(type='mmmoca.LoadImage')
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
        step['type'] = 'mmmoca.ResizeEdge' if edge else 'mmpretrain.Resize'
        step['backend'] = settings.backend
    return [
        dict(loader, skip_unreadable=False),
        step,
        dict(type='mmpretrain.CenterCrop', crop_size=(width, height)),
    ]


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
        sources: Paths, URLs of MMEngine's file backends, contents of files,
            PIL images, arrays, or what a data set says of an image.
        pipeline: Configs of transforms, the loader first.
    """

    def __init__(self, sources: Sequence[Any], pipeline: list[dict]) -> None:
        self.sources = sources
        loader, *self.transforms = map(build_transform, pipeline)
        self.loader = judging(loader)
        self.loader.skip_unreadable = False

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
            np.save(file, np.asarray(image), allow_pickle=False)
            return file.getvalue()
        if isinstance(image, np.ndarray):
            if image.shape[2:] == (1,):
                image = image[..., 0]
            known = image.shape[2:] in ((), (3,), (4,)) and image.size > 0
            if image.dtype != np.uint8 or not known:
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
        pipeline=[build_transform(pipeline[0])],
        extensions=BAND_EXTENSIONS if bands else EXTENSIONS,
        test_mode=True,
    )


def open_images(images: Any, pipeline: list[dict]) -> Images:
    """Find images.

    Args:
        images: A folder of images at any depth, or of shards, or a data set
            of Hugging Face, on a disk or in memory; a file, or its bytes; a
            PIL image, an array; or a list of these.
        pipeline: See :func:`pipeline_of`.

    Returns:
        The images.

    Raises:
        FileNotFoundError: If there is no such file or no image.
        OSError: If none of the images of a folder can be read.
        TypeError: If it is none of these.
        ValueError: If a list is empty.
    """
    if isinstance(images, Images):
        return images
    if is_opened(images):
        return Images(HFRows(images), pipeline)
    if isinstance(images, (str, os.PathLike)):
        place = os.path.expanduser(images)
        if _is_place(place) or not os.path.exists(place):
            found = image_set(place, pipeline)
            return Images(found.data_list, pipeline)
    sources = []
    for image in items_of(images):
        if isinstance(image, (str, os.PathLike)):
            path = str(os.path.expanduser(image))  # NumPy's, too
            several = _is_place(path) and image_set(path, pipeline).data_list
            sources += several or [path]
        elif isinstance(image, (bytes, Image.Image, np.ndarray)):
            sources.append(image)
        else:
            raise TypeError(
                'images are folders, files, their bytes, PIL images, arrays, '
                'one split of a data set of Hugging Face, or a normalised '
                f'tensor (B, C, H, W), but got {type(image).__name__}'
            )
    if not sources:
        raise ValueError('there are no images in an empty list')
    return Images(sources, pipeline)


def items_of(images: Any) -> Iterable[Any]:
    """The items of a list, of an array of paths or images; or of one image."""
    texts = getattr(getattr(images, 'dtype', None), 'kind', None) in (*'OUT',)
    one = (str, os.PathLike, bytes, Image.Image, Mapping)
    if isinstance(images, one) or not isinstance(images, Iterable):
        return [images]
    return [images] if getattr(images, 'ndim', 4) < 4 and not texts else images


def _is_place(path: str) -> bool:
    return path.endswith('.tar') or os.path.isdir(path)


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
