# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Time and memory of a downstream model at full size, without weights.

``detection``: one forward and one backward pass on drawn boxes and masks,
with the activation checkpointing of the config or without, in float32 on a
CPU and in 16 bits on a GPU. ``segmentation``: the prediction of one image of
noise by the windows of the config's ``test_cfg``. ::

    python projects/performance/downstream.py detection CONFIG --size 800 1216
    python projects/performance/downstream.py segmentation CONFIG
"""

import argparse
from pathlib import Path

SIZES = dict(detection=(800, 1216), segmentation=(1024, 2048))


def parse_args() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('task', choices=SIZES)
    add('config', help='of the task')
    sizes = ', '.join(f'{h} {w} for {k}' for k, (h, w) in SIZES.items())
    add('--size', type=int, nargs=2, metavar=('HEIGHT', 'WIDTH'), help=sizes)
    add('--repeats', type=int, default=1)
    add('--threads', type=int, help='of the CPU')
    add('--cfg-options', nargs='+', default=[], metavar='KEY=VALUE')
    add('--batch-size', type=int, default=1, help='for detection')
    add('--objects', type=int, default=8, help='on an image, for detection')
    add(
        '--no-checkpointing',
        action='store_true',
        help="leave out the config's activation checkpointing (detection)",
    )
    args = parser.parse_args()
    if not Path(args.config).is_file():
        parser.error(f'there is no config {args.config}')
    for option in args.cfg_options:
        if '=' not in option:
            parser.error(f'--cfg-options takes KEY=VALUE, but got {option}')
    args.size = args.size or SIZES[args.task]
    return parser, args


def main() -> None:
    """Measure and print."""
    parser, args = parse_args()
    import mmmoca  # noqa: F401  checks the installation before all else
    from mmmoca.stack import MissingOpsError, check_compiled_ops

    if args.task == 'detection':
        try:
            check_compiled_ops()
        except MissingOpsError as error:
            parser.error(str(error))
    import downstream_models

    getattr(downstream_models, args.task)(args)


if __name__ == '__main__':
    main()
