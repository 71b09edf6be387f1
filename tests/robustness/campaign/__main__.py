# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Break runs of the quick start on purpose, and see what is lost. Linux.

python -m tests.robustness.campaign stops configs
"""

import argparse
import importlib
import random
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

PARTS = (
    *('stops', 'images', 'numbers', 'processes', 'disks', 'configs'),
    *('intruders', 'names', 'soak'),
)


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument(
        'parts', nargs='*', metavar='PART', help=f'{", ".join(PARTS)}; or all'
    )
    parser.add_argument('--seed', type=int, default=0)
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f'no part {unknown.pop()}; there are {", ".join(PARTS)}')
    return args


def main() -> int:
    """Run the trials and print the table.

    Returns:
        int: 1 if anything was lost, else 0.
    """
    args = parse_args()
    console = Console()
    outcomes = defaultdict(list)
    for part in args.parts or PARTS:
        random.seed(args.seed)
        begin = time.time()
        module = importlib.import_module(f'.{part}', __package__)
        with tempfile.TemporaryDirectory() as scratch:
            for outcome in module.trials(Path(scratch)):
                outcomes[outcome.kind].append(outcome)
                mark = 'ok  ' if outcome.good else 'LOST'
                print(mark, *outcome[:2], outcome.said, sep=' | ', flush=True)
        print(f'{part}: {(time.time() - begin) / 60:.1f} minutes', flush=True)
    table = Table()
    for column in ('what', 'tried', 'survived', 'lost'):
        table.add_column(
            column, justify='left' if column == 'what' else 'right'
        )
    for kind, of_kind in outcomes.items():
        good = sum(outcome.good for outcome in of_kind)
        row = len(of_kind), good, len(of_kind) - good
        table.add_row(kind, *map(str, row))
    console.print(table)
    return int(any(not o.good for row in outcomes.values() for o in row))


if __name__ == '__main__':
    sys.exit(main())
