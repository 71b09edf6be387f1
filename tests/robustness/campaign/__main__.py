# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Break runs of the quick start on purpose, and see what is lost. Linux.

python -m tests.robustness.campaign stops --trials 5
"""

import argparse
import importlib
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

PARTS = 'stops', 'intruders'


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument(
        'parts', nargs='*', metavar='PART', help=f'{", ".join(PARTS)}; or all'
    )
    parser.add_argument(
        '--trials',
        type=int,
        default=25,
        help='stops for each number of processes',
    )
    parser.add_argument('--seed', type=int, default=0)
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f'no part {unknown.pop()}; there are {", ".join(PARTS)}')
    return args


def main() -> int:
    """Run the trials and print how each ended.

    Returns:
        int: 1 if anything was lost, else 0.
    """
    args = parse_args()
    tried, lost = Counter(), Counter()
    for part in args.parts or PARTS:
        random.seed(args.seed)
        trials = importlib.import_module(f'.{part}', __package__).trials
        with tempfile.TemporaryDirectory() as scratch:
            for kind, name, problem in trials(Path(scratch), args.trials):
                tried[kind] += 1
                lost[kind] += bool(problem)
                mark = 'LOST' if problem else 'ok  '
                print(mark, kind, name, problem, sep=' | ', flush=True)
    for kind, count in tried.items():
        print(f'{kind}: {count} tried, {lost[kind]} lost')
    return int(lost.total() > 0)


if __name__ == '__main__':
    sys.exit(main())
