# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Mean and standard deviation of each channel: ``band_statistics.py DATA``.

DATA is a folder of images of any channels and depth, or a config, whose
training images are read as it reads them. One image at a time is in memory.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import (
    add_cfg_options,
    config_file,
    import_stack,
    one_line_errors,
    positive_integer,
)

if TYPE_CHECKING:
    from mmengine.dataset import BaseDataset

OF_FOLDERS = ('channels', 'channel_axis', 'nodata')
EXTENSIONS = ('.jpeg', '.jpg', '.npy', '.pgm', '.png', '.tif', '.tiff')


class Moments(NamedTuple):
    """How many pixels there are of each channel, and how they spread.

    Attributes:
        count (np.ndarray): Pixels, (C,).
        mean (np.ndarray): Their mean, (C,), float64.
        squares (np.ndarray): Sum of the squared differences from it, (C,),
            float64.
        images (int): Images that they come from.
    """

    count: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    images: int = 1

    @classmethod
    def of(cls, img: np.ndarray) -> 'Moments':
        """Moments of one image.

        Args:
            img (np.ndarray): Image of shape (H, W) or (H, W, C), of any real
                type. NaN is left out.
        """
        x = np.atleast_3d(img).astype(np.float64)
        valid = ~np.isnan(x)
        count = valid.sum(axis=(0, 1))
        mean = x.sum(axis=(0, 1), where=valid) / count.clip(min=1)
        squares = np.square(x - mean).sum(axis=(0, 1), where=valid)
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


def _read(dataset: 'BaseDataset', index: int) -> tuple[str, Moments | None]:
    """Path of an image and its moments, None of one that is skipped."""
    results = dataset.get_data_info(index)
    path = results['img_path']
    for transform in dataset.pipeline.transforms:
        results = transform(results)
        if results is None:  # unreadable: the loader has said so
            return path, None
        if 'img' in results:
            return path, Moments.of(results['img'])
    raise ValueError('no transform of the pipeline loads an image')


def moments_of(
    dataset: 'BaseDataset', workers: int = 2, images: int | None = None
) -> Moments:
    """Go through a data set, with a few images in memory at a time.

    Its pipeline runs up to the transform that loads. Images that this one
    skips are left out, and so are pixels that are NaN or, for ``LoadBands``,
    ``nodata``.

    Args:
        dataset (BaseDataset): The images. Its ``LoadBands``, if any, is
            changed.
        workers (int): Threads that read. The result does not depend on it.
        images (int, optional): How many images to read, evenly spread. None
            means all.

    Raises:
        OSError: If there is no image that can be read.
        ValueError: If images differ in their channels. It names the file.
    """
    from rich.progress import track

    for transform in dataset.pipeline.transforms:
        if hasattr(transform, 'nodata'):
            transform.fill = np.nan

    total = None
    number = min(images or len(dataset), len(dataset))
    indices = np.linspace(0, len(dataset) - 1, number).astype(int)
    with ThreadPoolExecutor(workers) as pool:
        found = pool.map(partial(_read, dataset), indices.tolist())
        found = track(found, 'Reading images', number)
        for path, moments in found:
            if total is None or moments is None:
                total = total or moments
            elif len(total.count) == len(moments.count):
                total += moments
            else:
                raise ValueError(
                    f'{path} has {len(moments.count)} channels, but those '
                    f'before it have {len(total.count)}: take out what does '
                    'not belong to the set'
                )
    if total is None:
        raise OSError('none of the images can be read')
    return total


def folder_of_bands(
    root: Path,
    channels: int | None = None,
    channel_axis: str | None = None,
    nodata: float | None = None,
) -> 'BaseDataset':
    """All images below a folder.

    Args:
        root (Path): The folder, searched at any depth.
        channels (int, optional): Channels of each image. By default as many
            as the first image that can be read has along its shorter axis,
            the first or the last.
        channel_axis (str, optional): See ``mmmoca.LoadBands``.
        nodata (float, optional): Likewise.
    """
    from mmmoca.datasets import ImageFolder, LoadBands

    shapes = _shapes(root) if channels is None else iter(())
    if shape := next(shapes, None):
        ends = dict(first=shape[0], last=shape[-1])
        channels = ends.get(channel_axis, min(ends.values()))
        channels = channels if len(shape) > 2 else 1
    loader = LoadBands(channels or 1, channel_axis, nodata)
    return ImageFolder(
        str(root),
        with_label=False,
        extensions=EXTENSIONS,
        pipeline=[loader],
    )


def _shapes(root: Path) -> Iterator[tuple[int, ...]]:
    """Shapes of the images below a folder that can be read."""
    from mmmoca.datasets import LoadBands

    for path in root.rglob('*'):
        if path.suffix.lower() in EXTENSIONS:
            try:
                img = LoadBands(1).decode(path.read_bytes())
            except Exception:  # ImageFolder names what cannot be read
                continue
            if img is not None:
                yield img.shape


def folder_or_config(name: str) -> Path:
    """Type of an argument: a folder, or a config file."""
    path = Path(name).expanduser()
    return path if path.is_dir() else config_file(name)


def parse_args() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description='Print the mean and std of each channel of an image set, '
        'for model.data_preprocessor'
    )
    add = parser.add_argument
    add('data', type=folder_or_config, help='a folder, or a config')
    add('--channels', type=positive_integer, help='of each image of a folder')
    axis = 'where the files of a folder have them (where they fit)'
    add('--channel-axis', choices=['first', 'last'], help=axis)
    nodata = 'value of pixels of a folder that were not measured, as nan is'
    add('--nodata', type=float, help=nodata)
    images = 'read so many, evenly spread (all)'
    add('--images', type=positive_integer, help=images)
    threads = 'threads that read (2)'
    add('--workers', type=positive_integer, default=2, help=threads)
    add('--out', type=Path, help='write the numbers to this JSON file, too')
    add_cfg_options(parser)
    args = parser.parse_args()
    given = [name for name in OF_FOLDERS if getattr(args, name) is not None]
    if given and not args.data.is_dir():
        parser.error(
            f'write {", ".join(given)} in mmmoca.LoadBands of the config: '
            'options are for folders'
        )
    return parser, args


def build_dataset(args: argparse.Namespace) -> tuple['BaseDataset', bool]:
    """The images, and whether the model turns their channels round."""
    if args.data.is_dir():
        loader = {name: getattr(args, name) for name in OF_FOLDERS}
        return folder_of_bands(args.data, **loader), False
    from mmengine.registry import DATASETS, init_default_scope

    from mmmoca.engine.launch import load_config

    cfg = load_config(args.data, cfg_options=args.cfg_options)
    init_default_scope(cfg.get('default_scope'))
    preprocessor = cfg.model.get('data_preprocessor') or {}
    turned = preprocessor.get('to_rgb') or preprocessor.get('bgr_to_rgb')
    return DATASETS.build(cfg.train_dataloader.dataset), bool(turned)


def main() -> None:
    """Read the images and print the numbers."""
    parser, args = parse_args()
    import_stack()
    with one_line_errors(parser, OSError, ValueError):
        dataset, turned = build_dataset(args)
        moments = moments_of(dataset, args.workers, args.images)
    mean, std = moments.mean, moments.std
    if turned and len(mean) == 3:
        mean, std = mean[::-1], std[::-1]
    for band in (std == 0).nonzero()[0]:
        print(f'channel {band} is constant: its std is written as 1')
        std[band] = 1
    numbers = dict(
        mean=[float(f'{value:.6g}') for value in mean],
        std=[float(f'{value:.6g}') for value in std],
    )
    print(
        f'{moments.images} images of {len(mean)} channels. In the config, '
        f'model.backbone.in_channels={len(mean)} and in model.'
        'data_preprocessor:'
    )
    for name, values in numbers.items():
        print(f'{name}={values},')
    if args.out:
        numbers |= dict(images=moments.images, pixels=moments.count.tolist())
        args.out.write_text(json.dumps(numbers, indent=2) + '\n')


if __name__ == '__main__':
    main()
