# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Print mean and std of each channel, for model.data_preprocessor.

Reads the images below a folder, with any number of channels and any bit depth.
Only a few images are in memory at a time.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import (
    image_folder,
    import_stack,
    positive_integer,
    run_program,
)

if TYPE_CHECKING:
    from mmmoca.datasets import LoadBands


def moments_of(img: np.ndarray) -> np.ndarray:
    """Compute the count, mean and squared differences of each channel.

    Args:
        img (np.ndarray): Image of shape (H, W) or (H, W, C), of any real
            type. NaN is left out.

    Returns:
        np.ndarray: Number of pixels, mean, and sum of the squared differences
        from the mean, (3, C), float64.
    """
    x = np.atleast_3d(img).astype(np.float64)
    valid = ~np.isnan(x)
    count = valid.sum(axis=(0, 1))
    mean = x.sum(axis=(0, 1), where=valid) / count.clip(min=1)
    squares = np.square(x - mean).sum(axis=(0, 1), where=valid)
    return np.stack((count, mean, squares))


def mean_and_std(moments: Sequence[np.ndarray]) -> np.ndarray:
    """Compute mean and standard deviation of all pixels, (2, C).

    Args:
        moments (Sequence[np.ndarray]): Moments of each image, (3, C).
    """
    count, means, squares = np.stack(moments, axis=1)  # (N, C) each
    total = count.sum(axis=0).clip(min=1)
    mean = (count * means).sum(axis=0) / total
    squares = squares + count * np.square(means - mean)
    return np.stack((mean, np.sqrt(squares.sum(axis=0) / total)))


def read_moments(
    root: str, loader: 'LoadBands', workers: int, images: int | None
) -> list[np.ndarray]:
    """Compute the moments of the images below a folder.

    Images that cannot be read are named and left out, as in training. If the
    loader or a file defines ``nodata``, pixels that have this value or are NaN
    do not count. If neither defines it, images with NaN are left out.

    Args:
        root (str): The folder.
        loader (LoadBands): Reads the images. It must turn ``nodata`` into NaN.
        workers (int): Number of threads that read. The result does not depend
            on it.
        images (int, optional): How many images to read, evenly spread. None
            means all.

    Returns:
        list[np.ndarray]: Moments of each image that was read, see
        :func:`moments_of`.

    Raises:
        OSError: If there is no image that can be read.
        ValueError: If an image has another number of channels than ``loader``
            expects. The message names the file.
    """
    from rich.progress import track

    from mmmoca.datasets import ImageFolder
    from mmmoca.datasets.file_extensions import BAND_EXTENSIONS

    folder = ImageFolder(
        root, with_label=False, extensions=BAND_EXTENSIONS, pipeline=[loader]
    )

    def read(index: int) -> np.ndarray | None:
        results = folder.prepare_data(index)
        return None if results is None else moments_of(results['img'])

    number = min(images or len(folder), len(folder))
    indices = np.linspace(0, len(folder) - 1, number).astype(int)
    with ThreadPoolExecutor(workers) as pool:
        found = pool.map(read, indices.tolist())
        found = track(found, 'Reading images', number)
        kept = [moments for moments in found if moments is not None]
    if not kept:
        raise OSError('none of the images can be read')
    return kept


def count_channels(root: Path, channel_axis: str | None) -> int:
    """Return the number of channels of the first image that can be read.

    Args:
        root (Path): The folder of images.
        channel_axis (str, optional): See ``mmmoca.LoadBands``. Defaults to
            the first or the last axis, whichever is shorter.
    """
    from mmmoca.datasets import LoadBands
    from mmmoca.datasets.file_extensions import BAND_EXTENSIONS, with_extension
    from mmmoca.datasets.headers import read_header
    from mmmoca.datasets.image_folder import visible_files

    for path in with_extension(
        visible_files(root), BAND_EXTENSIONS, Counter()
    ):
        try:
            content = Path(path).read_bytes()
            shape = LoadBands(3).decode(content, read_header(content)).shape
        except Exception:  # ImageFolder will name the file
            continue
        ends = dict(first=shape[0], last=shape[-1])
        if len(shape) > 2:
            return ends.get(channel_axis, min(ends.values()))
        return 1
    return 1


def measure(args: argparse.Namespace) -> None:
    """Read the images and print the numbers.

    Args:
        args (argparse.Namespace): The command line.
    """
    import_stack()
    from mmmoca.datasets import LoadBands
    from mmmoca.files import write_json

    root = Path(args.folder).expanduser()
    axis = args.channel_axis
    channels = args.channels or count_channels(root, axis)
    options = dict(fill='nan', max_unreadable=1)
    loader = LoadBands(channels, axis, args.nodata, **options)
    moments = read_moments(str(root), loader, args.workers, args.images)
    mean, std = mean_and_std(moments)
    # Rounding leaves the std of a constant channel slightly above 0.
    for band in (std <= 1e-9 * np.abs(mean)).nonzero()[0]:
        print(f'channel {band} is constant: its std is written as 1')
        std[band] = 1
    numbers = dict(
        mean=[float(f'{value:.6g}') for value in mean],
        std=[float(f'{value:.6g}') for value in std],
    )
    print(
        f'{len(moments)} images of {channels} channels. In the config, '
        f'set model.backbone.in_channels={channels}, and in model.'
        'data_preprocessor:'
    )
    for name, values in numbers.items():
        print(f'{name}={values},')
    if args.out:
        pixels = np.sum(moments, axis=0)[0].astype(int).tolist()
        numbers |= dict(images=len(moments), pixels=pixels)
        write_json(args.out, numbers)


def main() -> None:
    """Measure mean and std of the channels of a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('folder', type=image_folder, help='folder of images, at any depth')
    channels = 'number of channels (by default that of the first image)'
    add('--channels', type=positive_integer, help=channels)
    axis = (
        'axis of the channels (by default the first or the last, whichever '
        'has as many entries as there are channels)'
    )
    add('--channel-axis', choices=['first', 'last'], help=axis)
    nodata = 'value that marks unmeasured pixels; nan if only NaN marks them'
    add('--nodata', type=float, help=nodata)
    images = 'number of images to read, evenly spread (all)'
    add('--images', type=positive_integer, help=images)
    threads = 'number of threads that read images (2)'
    add('--workers', type=positive_integer, default=2, help=threads)
    add('--out', type=Path, help='JSON file to write the numbers to')
    run_program(parser, measure)


if __name__ == '__main__':
    main()
