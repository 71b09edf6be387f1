# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Time and memory of a segmentor's inference: ``python ... CONFIG``.

One image of noise, by the windows of the config's ``test_cfg``; the weights
are untrained, which changes neither.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import add_cfg_options, config_file


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument(
        'config', type=config_file, help='a segmentation config'
    )
    parser.add_argument(
        '--size',
        type=int,
        nargs=2,
        default=(1024, 2048),
        metavar=('HEIGHT', 'WIDTH'),
        help='of the image (1024 2048, as Cityscapes)',
    )
    parser.add_argument('--repeat', type=int, default=1)
    parser.add_argument('--threads', type=int, help='of the CPU')
    add_cfg_options(parser)
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    args = parse_args()
    import mmmoca  # noqa: F401  checks the installation before all else
    from _benchmark_segmentation import benchmark

    print(json.dumps(benchmark(args)))


if __name__ == '__main__':
    main()
