# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Images a second on one core, of the two-view input pipeline.

Forms of the paper's augmentation (appendix "Image augmentations
pseudo-code"), each from the file to a batch of two views of 224 x 224 pixels:
torchvision's on PIL images, as the paper lists it; that of
``configs/_base_/datasets``, which leaves normalisation to the device; and what
is left to the CPU where a GPU makes the views (``projects/gpu_views``).

They take turns over the same files on a single thread. The processor's time
counts, so that other work on the machine hardly matters.

Example:
    PYTHONPATH=. python projects/performance/data.py --data data/imagenet/val
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    add = parser.add_argument
    add('--data', metavar='DIR', help='images instead of two photographs')
    add('--write', metavar='DIR', help='write the photographs there, and end')
    add('--number', type=int, default=64, help='of images')
    add(
        '--size',
        type=int,
        nargs=2,
        default=(375, 500),
        metavar=('HEIGHT', 'WIDTH'),
        help='of the photographs, JPEG files of quality 90',
    )
    add('--repeats', type=int, default=7)
    add('--rate', type=int, default=1640, help='images/s that a GPU wants')
    args = parser.parse_args()
    if args.data and not Path(args.data).expanduser().is_dir():
        parser.error(f'there is no folder {args.data}')
    import mmmoca  # noqa: F401  checks the installation before all else

    # isort: split
    import cv2
    import torch
    from mmengine.dataset import default_collate

    from measure import median_seconds, print_table
    from mmmoca.datasets import ImageFolder
    from pipelines import all_pipelines, write_photos

    if args.write:
        Path(args.write).mkdir(parents=True, exist_ok=True)
        write_photos(args.write, args.number, args.size)
        return
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as written:
        if not args.data:
            write_photos(written, args.number, args.size)
        folder = ImageFolder(args.data or written, with_label=False)
        step = max(1, len(folder) // args.number)
        paths = [
            folder.get_data_info(index)['img_path']
            for index in range(0, len(folder), step)[: args.number]
        ]
        size = statistics.mean(Path(path).stat().st_size for path in paths)
        forms = {
            name: lambda run=pipeline: default_collate([*map(run, paths)])
            for name, pipeline in all_pipelines().items()
        }
        seconds = median_seconds(forms, args.repeats, time.process_time)
    paper = next(iter(seconds.values()))
    print_table(
        f'{len(paths)} images, {size / 1000:.0f} kB each on average; median '
        f'of {args.repeats} turns',
        ('pipeline', 'images/s a core', 'ratio', f'cores for {args.rate}/s'),
        (
            (
                *(name, f'{len(paths) / value:.0f}', f'{paper / value:.2f}'),
                f'{args.rate * value / len(paths):.1f}',
            )
            for name, value in seconds.items()
        ),
    )


if __name__ == '__main__':
    main()
