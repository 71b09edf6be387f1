# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Mean and standard deviation of each channel: ``band_statistics.py DATA``.

DATA is a folder of images of any channels and depth, or a config, whose
training images are read as it reads them. One image at a time is in memory.
"""

import argparse
import json
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

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


def folder_or_config(name: str) -> Path:
    """Type of an argument: a folder, or a config file."""
    path = Path(name).expanduser()
    return path if path.is_dir() else config_file(name)


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description='Print the mean and std of each channel of an image set, '
        'for model.data_preprocessor'
    )
    add = parser.add_argument
    add('data', type=folder_or_config, help='a folder, or a config')
    add('--channels', type=positive_integer, help='of each image of a folder')
    add(
        '--channel-axis',
        choices=['first', 'last'],
        help="where a folder's TIFF and NPY files have them (by default where "
        'they fit)',
    )
    add(
        '--nodata',
        type=float,
        help='value of pixels of a folder that were not measured: they do '
        'not count, nor does nan',
    )
    add(
        '--images',
        type=positive_integer,
        help='read so many, evenly spread (all)',
    )
    add('--workers', type=int, default=2, help='processes that read (2)')
    add('--out', type=Path, help='write the numbers to this JSON file, too')
    add_cfg_options(parser)
    args = parser.parse_args()
    if not args.data.is_dir():
        for name in OF_FOLDERS:
            if getattr(args, name) is not None:
                parser.error(
                    f'write {name} in mmmoca.LoadBands of the config: '
                    'options are for folders'
                )
    args.parser = parser
    return args


def build_dataset(args: argparse.Namespace) -> tuple['BaseDataset', bool]:
    """The images, and whether the model turns their channels round."""
    if args.data.is_dir():
        from mmmoca.datasets.band_statistics import folder_of_bands

        loader = {name: getattr(args, name) for name in OF_FOLDERS}
        return folder_of_bands(str(args.data), **loader), False
    from mmengine.registry import DATASETS, init_default_scope

    from mmmoca.engine.launch import load_config

    cfg = load_config(args.data, cfg_options=args.cfg_options)
    init_default_scope(cfg.get('default_scope'))
    preprocessor = cfg.model.get('data_preprocessor') or {}
    turned = preprocessor.get('to_rgb') or preprocessor.get('bgr_to_rgb')
    return DATASETS.build(cfg.train_dataloader.dataset), bool(turned)


def main() -> None:
    """Read the images and print the numbers."""
    args = parse_args()
    import_stack()
    from rich.progress import track

    from mmmoca.datasets.band_statistics import stream_moments

    with one_line_errors(args.parser, OSError, ValueError):
        dataset, turned = build_dataset(args)
        count = min(args.images or len(dataset), len(dataset))
        stream = stream_moments(dataset, args.workers, count)
        last = deque(track(stream, 'Reading images', count), maxlen=1)
    moments = last.pop()
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
