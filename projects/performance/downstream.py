# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Time and memory of a detector's training step at full size.

One forward and one backward pass, with the activation checkpointing of the
config or without, in float32 on a CPU and in the config's precision on a GPU::

    python tools/benchmarks/benchmark_detection.py CONFIG --size 800 1216
"""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import config_file


def parse_args() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument(
        'config', type=config_file, help='a config of detection'
    )
    parser.add_argument(
        '--size',
        type=int,
        nargs=2,
        default=(800, 1216),
        metavar=('H', 'W'),
        help='height and width of the images (800 1216)',
    )
    parser.add_argument('--batch-size', type=int, default=1)
    parser.add_argument(
        '--objects', type=int, default=8, help='objects on an image (8)'
    )
    parser.add_argument(
        '--no-checkpointing',
        action='store_true',
        help="leave out the config's activation checkpointing",
    )
    return parser, parser.parse_args()


def main() -> None:
    """Measure and print."""
    parser, args = parse_args()
    import mmmoca  # noqa: F401  checks the installation before all else
    from mmmoca.stack import MissingOpsError, check_compiled_ops

    try:
        check_compiled_ops()
    except MissingOpsError as error:
        parser.error(str(error))
    from _benchmark_detection import benchmark

    print(benchmark(args))


if __name__ == '__main__':
    main()
