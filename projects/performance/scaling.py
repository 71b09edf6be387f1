# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Bytes that a process sends and keeps, by network, processes and batch.

A small model of the recipe in ``configs/``: parameters are counted on the
real network, activations on its forward pass with fake tensors; the rest is
arithmetic. ``--check`` compares it with what real processes on this machine
send, by the kernel's counters of their sockets, and keep (Linux).

Example:
    python tools/benchmarks/scaling.py
    python tools/benchmarks/scaling.py --check --ranks 1 2 4
"""

import argparse
import json


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
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
    return parser.parse_args()


def main() -> None:
    """Print the tables, or the comparison as JSON lines."""
    args = parse_args()
    import mmmoca  # noqa: F401  checks the installation before all else

    # isort: split
    from mmengine.registry import init_default_scope
    from rich.console import Console

    from _scaling_tables import check, tables

    init_default_scope('mmpretrain')
    if args.check:
        for row in check(args):
            print(json.dumps(row), flush=True)
        return
    for table in tables(args):
        Console().print(table)


if __name__ == '__main__':
    main()
