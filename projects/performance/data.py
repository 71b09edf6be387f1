# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images a second on one core, of the two-view input pipeline.

Four forms of the paper's augmentation (appendix "Image augmentations
pseudo-code"), each from the file to two views of 224 x 224 pixels:
torchvision's on PIL images, as the paper lists it; the same recipe from
MMPreTrain's own transforms, with its Pillow and its OpenCV backend; and that
of ``configs/_base_/datasets``. All MM pipelines leave normalisation to the
device, the paper's does it; the last row adds ours on the CPU.

They take turns over the same files on a single thread. What counts is the
processor's time, so that other work on the machine hardly matters.

Example:
    python projects/performance/data.py --data data/imagenet/val
"""

import argparse
from pathlib import Path


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument(
        '--data', metavar='DIR', help='folder of images instead of drawings'
    )
    parser.add_argument('--number', type=int, default=64, help='of images')
    parser.add_argument(
        '--size',
        type=int,
        nargs=2,
        default=(375, 500),
        metavar=('HEIGHT', 'WIDTH'),
        help='of the drawn images, JPEG files of quality 90',
    )
    parser.add_argument('--repeats', type=int, default=7)
    args = parser.parse_args()
    if args.data and not Path(args.data).expanduser().is_dir():
        parser.error(f'there is no folder {args.data}')
    return args


def main() -> None:
    """Measure and print the table."""
    args = parse_args()
    import mmmoca  # noqa: F401  checks the installation before all else
    from pipelines import benchmark

    benchmark(args)


if __name__ == '__main__':
    main()
