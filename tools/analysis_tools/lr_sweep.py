# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Tune the learning rate: ``python .../lr_sweep.py CONFIG --lrs 1e-3 1e-2``.

Trains with each rate and keeps the best validation of each run. With several
splits the rate is tuned on the first and used for the others, as the paper
does for Cityscapes (appendix on evaluation protocols).
"""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import config_file


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description='Tune the learning rate. A sweep that was stopped goes on '
        'where it was.'
    )
    parser.add_argument(
        'config', type=config_file, help='a config that trains and validates'
    )
    parser.add_argument('--lrs', type=float, nargs='+', required=True)
    parser.add_argument(
        '--splits',
        nargs='+',
        help='values of train_dataloader.dataset.ann_file: the rate is tuned '
        'on the first and used for all',
    )
    parser.add_argument(
        '--metric', default='mIoU', help='by default mIoU; higher is better'
    )
    parser.add_argument(
        '--work-dir',
        type=Path,
        help='one folder for all runs (by default work_dirs/sweep_<config>)',
    )
    parser.add_argument('--gpus', type=int, default=1, help='of each run')
    parser.add_argument(
        '--train-args',
        default='',
        help='further arguments of tools/train.py, such as --train-args=--amp',
    )
    parser.add_argument(
        '--cfg-options', nargs='+', default=[], metavar='KEY=VALUE'
    )
    args = parser.parse_args()
    if args.work_dir is None:
        args.work_dir = Path('work_dirs') / f'sweep_{args.config.stem}'
    args.config = str(args.config)
    return args


def main() -> None:
    """Sweep, print the tables and write them beside the runs."""
    args = parse_args()
    import mmmoca  # noqa: F401  checks the installation before all else
    from _lr_sweep import format_table, sweep
    from mmmoca.files import write_json, write_text

    try:
        result = sweep(args)
    except ValueError as error:
        sys.exit(f'error: {error}')
    table = format_table(result)
    write_json(args.work_dir / 'sweep.json', result)
    write_text(args.work_dir / 'sweep.md', table)
    print(table, end='')


if __name__ == '__main__':
    main()
