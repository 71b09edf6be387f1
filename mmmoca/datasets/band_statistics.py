# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Mean and standard deviation of each channel of an image set."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from mmengine.dataset import BaseDataset
from torch.utils.data import DataLoader, Dataset, Subset

from mmmoca.messages import printable

from .band_loading import LoadBands, count_channels
from .image_folder import ImageFolder

__all__ = ['Moments', 'folder_of_bands', 'stream_moments']

EXTENSIONS = ('.jpeg', '.jpg', '.npy', '.pgm', '.png', '.tif', '.tiff')


class Moments(NamedTuple):
    """How many pixels there are of each channel, and how they spread.

    Attributes:
        count: Pixels, (C,).
        mean: Their mean, (C,), float64.
        squares: Sum of the squared differences from it, (C,), float64.
        images: Images that they come from.
    """

    count: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    images: int = 1

    @classmethod
    def of(cls, img: np.ndarray) -> 'Moments':
        """Moments of one image.

        Args:
            img: Image of shape (H, W) or (H, W, C), of any real type. NaN
                is left out.

        Returns:
            Its moments.
        """
        x = np.atleast_3d(img).astype(np.float64)
        valid = ~np.isnan(x)
        count = valid.sum(axis=(0, 1))
        mean = x.sum(axis=(0, 1), where=valid) / count.clip(min=1)
        x -= mean
        squares = np.square(x, out=x).sum(axis=(0, 1), where=valid)
        return cls(count, mean, squares)

    def __add__(self, other: 'Moments') -> 'Moments':
        """Moments of both sets of pixels.

        Chan et al., "Updating Formulae and a Pairwise Algorithm for Computing
        Sample Variances", 1979.
        """
        count = self.count + other.count
        share = other.count / count.clip(min=1)
        delta = other.mean - self.mean
        return Moments(
            count,
            self.mean + delta * share,
            self.squares + other.squares + delta**2 * self.count * share,
            self.images + other.images,
        )

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of all pixels, (C,), float64."""
        return np.sqrt(self.squares / self.count.clip(min=1))


class _ImageMoments(Dataset):
    """Computed where the images are read: in the processes of the loader."""

    def __init__(self, images: BaseDataset) -> None:
        self.images = images
        for transform in images.pipeline.transforms:
            if isinstance(transform, LoadBands):
                transform.fill = np.nan

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[str, Moments | None]:
        results = self.images.get_data_info(index)
        path = results['img_path']
        for transform in self.images.pipeline.transforms:
            results = transform(results)
            if results is None:  # unreadable: the loader has said so
                return path, None
            if 'img' in results:
                return path, Moments.of(results['img'])
        raise ValueError('no transform of the pipeline loads an image')


def _as_it_is(sample: tuple) -> tuple:
    """In the place of PyTorch's, which makes tensors of arrays."""
    return sample


def stream_moments(
    dataset: BaseDataset, workers: int = 0, images: int | None = None
) -> Iterator[Moments]:
    """Go through a data set, with a few images in memory at a time.

    Its pipeline runs up to the transform that loads. Images that this one
    skips are left out, and so are pixels that are NaN or, for
    :class:`LoadBands`, ``nodata``.

    Args:
        dataset: The images. Its :class:`LoadBands`, if any, is changed.
        workers: Processes that read; 0 reads in this one. The result does
            not depend on it.
        images: How many images to read, evenly spread. None means all.

    Yields:
        Moments of all images so far, after each.

    Raises:
        OSError: If there is no image that can be read.
        ValueError: If images differ in their channels. It names the file.
    """
    chosen = _ImageMoments(dataset)
    if images is not None and images < len(dataset):
        indices = np.linspace(0, len(dataset) - 1, images).astype(int)
        chosen = Subset(chosen, indices.tolist())
    loader = DataLoader(
        chosen, batch_size=None, num_workers=workers, collate_fn=_as_it_is
    )
    total = None
    for path, moments in loader:
        if total is None or moments is None:
            total = total or moments
        elif len(total.count) == len(moments.count):
            total += moments
        else:
            raise ValueError(
                f'{printable(path)} has {len(moments.count)} channels, but '
                f'those before it have {len(total.count)}: take out what '
                'does not belong to the set'
            )
        if total is not None:
            yield total
    if total is None:
        raise OSError('none of the images can be read')


def folder_of_bands(
    root: str, channels: int | None = None, **loader
) -> ImageFolder:
    """All images below a folder, for :func:`stream_moments`.

    Args:
        root: The folder, searched at any depth.
        channels: Channels of each image. Defaults to None, as many as the
            first image that can be read seems to have.
        **loader: Further arguments of :class:`LoadBands`.

    Returns:
        The data set.

    Raises:
        OSError: See :class:`ImageFolder`.
        ValueError: If the channels are not clear, or not those of all images.
    """
    if channels is None:
        channels = _guess_channels(root, loader.get('channel_axis'))
    return ImageFolder(
        root,
        with_label=False,
        extensions=EXTENSIONS,
        pipeline=[LoadBands(channels, **loader)],
    )


def _guess_channels(root: str, channel_axis: str | None) -> int:
    for path in Path(root).expanduser().rglob('*'):
        if path.suffix.lower() not in EXTENSIONS:
            continue
        try:
            img = LoadBands(1).decode(path.read_bytes())
        except Exception:  # ImageFolder names what cannot be read
            continue
        if img is not None:
            return count_channels(img, path, channel_axis)
    return 1
