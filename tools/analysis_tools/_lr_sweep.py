# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The work of lr_sweep.py: runs, and what they reached."""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mmmoca.evaluation.report import render_table
from mmmoca.files import write_json

__all__ = ['best_validation', 'format_table', 'read_metric', 'sweep']

TOOLS = Path(__file__).resolve().parents[1]
LR = 'optim_wrapper.optimizer.lr'
SPLIT = 'train_dataloader.dataset.ann_file'


def read_metric(work_dir: Path, metric: str) -> list[float]:
    """Values of a validation metric, from all logs of a work dir.

    Args:
        work_dir (Path): Of a run that may have been resumed.
        metric (str): Its name, such as 'mIoU'.

    Returns:
        List[float]: The values in the order of the logs.
    """
    values = []
    for path in sorted(work_dir.glob('*/vis_data/scalars.json')):
        for line in path.read_text().splitlines():
            values += [
                value
                for name, value in json.loads(line).items()
                if name == metric
            ]
    return values


def best_validation(work_dir: Path, metric: str) -> float:
    """The highest value of a validation metric.

    Args:
        work_dir (Path): Of a run.
        metric (str): Its name; higher is better.

    Returns:
        float: The value.

    Raises:
        ValueError: If the run has none.
    """
    values = read_metric(work_dir, metric)
    if not values:
        raise ValueError(
            f'no validation in {work_dir} has the metric {metric!r}: name it '
            'by --metric as the log does'
        )
    return max(values)


def sweep(args: argparse.Namespace) -> dict:
    """Train with all rates, then all splits with the best of them.

    Args:
        args (argparse.Namespace): See ``--help``.

    Returns:
        dict: ``lrs`` (rate -> metric on the first split, None if it
        diverged), ``best_lr``,
        ``splits`` (split -> metric with the best rate), ``mean``, ``std``.

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


def format_table(result: dict) -> str:
    """The result as Markdown.

    Args:
        result (dict): Of :func:`sweep`.

    Returns:
        str: A table of rates on the first split, and one of splits.
    """
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


def _score(
    args: argparse.Namespace, lr: float, split: str | None
) -> float | None:
    """Best validation of one run, which is trained unless it was."""
    name = f'lr_{lr:g}'
    if split is not None:
        name = f'{Path(split).stem}_{name}'
    folder = args.work_dir / name
    options = [f'{LR}={lr!r}', *args.cfg_options]
    if split is not None:
        options.append(f'{SPLIT}={split}')
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
        folder.mkdir(parents=True, exist_ok=True)
        write_json(state_file, state)
        state['ended'] = _train(args, folder, options)
        write_json(state_file, state)
    if state['ended'] == 'diverged':
        return None
    return best_validation(folder, args.metric)


def _train(
    args: argparse.Namespace, folder: Path, options: Sequence[str]
) -> str:
    """Train, or go on; how it ended: 'well' or 'diverged'."""
    command = [sys.executable, str(TOOLS / 'train.py'), args.config]
    if args.gpus > 1:
        command = [str(TOOLS / 'dist_train.sh'), args.config, str(args.gpus)]
    command += [
        '--work-dir',
        str(folder),
        '--resume',
        *args.train_args.split(),
    ]
    command += ['--cfg-options', *options]
    print(' '.join(command), flush=True)
    run = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    sys.stderr.write(run.stderr)
    if run.returncode and 'NonFiniteLossError' in run.stderr:
        return 'diverged'
    if run.returncode:
        raise ValueError(f'the training in {folder} failed, see above')
    return 'well'
