# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Measure the two-view input pipeline, in images per second on one core.

There are three forms of the paper's augmentation (appendix "Image
augmentations pseudo-code"). The first is the paper's listing, with torchvision
on PIL images. The second is the pipeline of ``configs/_base_/datasets``, which
leaves normalisation to the device. The third is what remains for the CPU if a
GPU makes the views (``projects/gpu_views``). Each form starts from the files
of photographs and ends with a batch. Views have 224 x 224 pixels.

The forms take turns over the same files on a single thread. CPU time is
measured, so that other work on the machine hardly matters.

Example:
    python projects/performance/data.py
"""

import argparse
import tempfile
import time
from pathlib import Path

RATE = 1210  # images/s at which an H100 trains with compile='blocks'


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    add = parser.add_argument
    add('--write', metavar='DIR', help='only write the photographs there')
    add('--number', type=int, default=64, help='number of images')
    add('--repeats', type=int, default=7)
    args = parser.parse_args()
    # This import also checks the versions.
    import mmmoca.import_mmpretrain  # noqa: F401

    # isort: split
    import cv2
    import torch
    from mmengine.dataset import default_collate

    from measure import median_seconds, report
    from pipelines import all_pipelines, write_photos

    if args.write:
        Path(args.write).mkdir(parents=True, exist_ok=True)
        write_photos(args.write, args.number)
        return
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_photos(folder, args.number)
        paths = [*map(str, Path(folder).iterdir())]
        forms = {
            name: lambda run=pipeline: default_collate([*map(run, paths)])
            for name, pipeline in all_pipelines().items()
        }
        seconds = median_seconds(forms, args.repeats, time.process_time)
    paper = next(iter(seconds.values()))
    print(f'\n{len(paths)} images; medians of {args.repeats} turns\n')
    figures = [
        {
            'pipeline': name,
            'images/s a core': len(paths) / value,
            'ratio': paper / value,
            f'cores for {RATE}/s': RATE * value / len(paths),
        }
        for name, value in seconds.items()
    ]
    report(figures)


if __name__ == '__main__':
    main()
