# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Opens the images that are passed to the Python interface."""

import os
from collections.abc import Iterable, Mapping
from io import IOBase
from typing import Any

import numpy as np
from PIL import Image

from mmmoca.datasets.file_extensions import BAND_EXTENSIONS, EXTENSIONS
from mmmoca.datasets.hf_images import HFRows, is_opened
from mmmoca.datasets.image_places import image_set_of, refuse_archive
from mmmoca.datasets.image_set import ImageSet

from .images import Images, build_transform


def image_set(
    place: str, pipeline: list[dict], with_label: bool = False
) -> ImageSet:
    """Find the images in a folder, in shards, or in a Hugging Face data set.

    Args:
        place (str): The folder, or a pattern of shards.
        pipeline (list[dict]): See :class:`Encoder`. Only its loader is used.
        with_label (bool): Whether the images have labels.

    Returns:
        ImageSet: The images. The loader of ``pipeline`` reads them.

    Raises:
        FileNotFoundError: If there is no such place, or no image in it.
        OSError: If none of up to 20 images, evenly spaced, can be read.
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
    """Prepare images from any source for an encoder.

    Args:
        images (Any): A folder of images at any depth, a folder of shards, or
            a Hugging Face data set, on disk or opened; a file, or its bytes;
            a PIL image; an array; or a list of these.
        pipeline (list[dict]): See :class:`Encoder`.

    Returns:
        Images: The images. They are read when they are used.

    Raises:
        FileNotFoundError: If the file or folder does not exist, or the folder
            has no image. A list of files is not checked.
        OSError: If none of up to 20 images of a folder can be read.
        TypeError: If ``images`` or an item of it is of none of the types
            above.
        ValueError: If a list is empty, if a file is an archive such as a zip
            file, or if a folder has 16-bit images and the loader reads 8 bits.
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
    sources: list[Any] = []
    for image in items_of(images):
        if isinstance(image, (str, os.PathLike)):
            path = str(os.path.expanduser(image))  # numpy.str_ becomes str
            refuse_archive(path)
            several = _is_place(path) and image_set(path, pipeline).data_list
            sources += several or [path]
        elif isinstance(image, (bytes, Image.Image, np.ndarray)):
            sources.append(image)
        else:
            raise TypeError(
                'images must be folders, files, their bytes, PIL images, '
                'arrays, one split of a Hugging Face data set, a list of '
                'these, or a normalised tensor (B, C, H, W), but got '
                f'{type(image).__name__}'
            )
    if not sources:
        raise ValueError('there are no images in an empty list')
    return Images(sources, pipeline)


def items_of(images: Any) -> Iterable[Any]:
    """Return the images in a list or array; wrap one image in a list."""
    one = str, os.PathLike, bytes, Image.Image, Mapping, IOBase, bytearray
    if isinstance(images, np.ndarray):
        of_paths = images.dtype.kind in 'OUT'
        return images if of_paths or images.ndim == 4 else [images]
    if type(images).__name__ == 'IterableDataset':
        raise TypeError(
            'a streamed Hugging Face data set cannot be indexed: load it '
            'without streaming=True'
        )
    # Sets and tables do not count as lists: a set has no order, and the items
    # of a table would be the names of its columns.
    no_list = isinstance(images, (*one, set, frozenset))
    no_list |= hasattr(images, 'columns')
    if no_list or not isinstance(images, Iterable):
        return [images]
    return images


def _is_place(path: str) -> bool:
    return path.endswith('.tar') or os.path.isdir(path)
