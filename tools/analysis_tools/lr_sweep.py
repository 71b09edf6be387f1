# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Tune the learning rate: ``python .../lr_sweep.py CONFIG --lrs 1e-3 1e-2``.

Trains with each rate and keeps the best validation of each run. With several
splits the rate is tuned on the first and used for the others, as the paper
does for Cityscapes (appendix on evaluation protocols).
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import config_file, import_stack, positive_integer

TOOLS = Path(__file__).resolve().parents[1]
LR = 'optim_wrapper.optimizer.lr'
SPLIT = 'train_dataloader.dataset.ann_file'


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
    parser.add_argument(
        '--gpus', type=positive_integer, default=1, help='of each run'
    )
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


def sweep(args: argparse.Namespace) -> dict:
    """Train with all rates, then all splits with the best of them.

    Args:
        args (argparse.Namespace): See ``--help``.

    Returns:
        dict: ``lrs`` (rate -> metric on the first split, None if it
        diverged), ``best_lr``, ``splits`` (split -> metric with the best
        rate), their ``mean`` and ``std``.

    Raises:
        ValueError: If runs fail, or all of them diverge.
    """
    splits = args.splits or [None]
    rates = {lr: _score(args, lr, splits[0]) for lr in args.lrs}
    finite = {lr: value for lr, value in rates.items() if value is not None}
    if not finite:
        raise ValueError('all runs diverged: try lower rates')
    best = max(finite, key=finite.get)
    results = {splits[0] or 'all': finite[best]}
    for split in splits[1:]:
        results[split] = _score(args, best, split)
        if results[split] is None:
            raise ValueError(f'the run on {split} with lr {best:g} diverged')
    values = list(results.values())
    return dict(
        config=args.config,
        metric=args.metric,
        lrs=rates,
        best_lr=best,
        splits=results,
        mean=statistics.mean(values),
        std=statistics.pstdev(values) if len(values) > 1 else None,
    )


def _score(
    args: argparse.Namespace, lr: float, split: str | None
) -> float | None:
    """Best validation of one run, which is trained unless it was."""
    from mmmoca.files import write_json

    name = f'lr_{lr:g}'
    options = [f'{LR}={lr!r}', *args.cfg_options]
    if split is not None:
        name = f'{Path(split).stem}_{name}'
        options.append(f'{SPLIT}={split}')
    folder = args.work_dir / name
    state_file = folder / 'run.json'
    state = dict(config=args.config, cfg_options=options, ended=None)
    if state_file.exists():
        before = json.loads(state_file.read_text())
        if before | dict(ended=None) != state:
            raise ValueError(
                f'{folder} has a run with other settings: choose another '
                '--work-dir, or remove it'
            )
        state = before
    if state['ended'] is None:
        write_json(state_file, state)
        state['ended'] = _train(args, folder, options)
        write_json(state_file, state)
    if state['ended'] == 'diverged':
        return None
    # A run that was resumed has several logs.
    logs = sorted(folder.glob('*/vis_data/scalars.json'))
    lines = [line for log in logs for line in log.read_text().splitlines()]
    values = [json.loads(line).get(args.metric) for line in lines]
    values = [value for value in values if value is not None]
    if not values:
        raise ValueError(
            f'no validation in {folder} has the metric {args.metric!r}: name '
            'it by --metric as the log does'
        )
    return max(values)


def _train(
    args: argparse.Namespace, folder: Path, options: Sequence[str]
) -> str:
    """Train, or go on; how it ended: 'well' or 'diverged'."""
    command = [sys.executable, str(TOOLS / 'train.py'), args.config]
    if args.gpus > 1:
        command = [str(TOOLS / 'dist_train.sh'), args.config, str(args.gpus)]
    command += ['--work-dir', str(folder), '--resume']
    command += [*shlex.split(args.train_args), '--cfg-options', *options]
    print(shlex.join(command), flush=True)
    run = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    sys.stderr.write(run.stderr)
    if run.returncode and 'NonFiniteLossError' in run.stderr:
        return 'diverged'
    if run.returncode:
        raise ValueError(f'the training in {folder} failed, see above')
    return 'well'


def format_table(result: dict) -> str:
    """The result as Markdown.

    Args:
        result (dict): Of :func:`sweep`.

    Returns:
        str: A table of rates on the first split, and one of splits.
    """
    from mmmoca.evaluation.report import render_table

    metric = result['metric']
    first = next(iter(result['splits']))
    rows = []
    for lr, value in result['lrs'].items():
        mark = '**' if lr == result['best_lr'] else ''
        text = 'diverged' if value is None else f'{value:.2f}'
        rows.append((f'{lr:g}', f'{mark}{text}{mark}'))
    table = render_table(('lr', f'{metric} ({first})'), rows)
    if result['std'] is None:
        return table
    rows = [(name, f'{value:.2f}') for name, value in result['splits'].items()]
    rows.append(('mean ± std', f'{result["mean"]:.2f} ± {result["std"]:.2f}'))
    heading = f'{metric} (lr {result["best_lr"]:g})'
    return table + '\n' + render_table(('split', heading), rows)


def main() -> None:
    """Sweep, print the tables and write them beside the runs."""
    args = parse_args()
    import_stack()
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
