# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Bytes that a process sends and keeps, by network, processes and batch.

A small model of the recipe in ``configs/``: parameters are counted on the
real network, activations on its forward pass with fake tensors; the rest is
arithmetic. ``--check`` compares it with what real processes on this machine
send, by the kernel's counters of their sockets, and keep (Linux).
"""

import argparse
import json
import sys


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--gpus', type=int, nargs='+', default=[8, 64, 512])
    parser.add_argument(
        '--check',
        action='store_true',
        help='compare with real processes instead, a small network on gloo',
    )
    parser.add_argument('--ranks', type=int, nargs='+', default=[1, 2, 4])
    parser.add_argument(
        '--memory', action='store_true', help='check memory, too (3 GB)'
    )
    args = parser.parse_args()
    if args.check and sys.platform != 'linux':
        parser.error('--check reads counters of Linux')
    return args


def main() -> None:
    """Print the tables, or the comparison as JSON lines."""
    args = parse_args()
    import mmmoca  # noqa: F401  checks the installation before all else

    # isort: split
    import scaling_tables

    if not args.check:
        scaling_tables.print_tables(args.gpus)
        return
    for row in scaling_tables.check(args.ranks, args.memory):
        print(json.dumps(row), flush=True)


if __name__ == '__main__':
    main()
