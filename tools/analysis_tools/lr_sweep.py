# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Tune the learning rate. The same command continues a stopped sweep.

Trains with each rate and records the best validation result of each run. With
several splits the rate is tuned on the first and used for the others, as the
paper does for Cityscapes (appendix on evaluation protocols).
"""

import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from _arguments import (
    config_file,
    import_stack,
    positive_integer,
    run_program,
)

TOOLS = Path(__file__).resolve().parents[1]
LR = 'optim_wrapper.optimizer.lr'
SPLIT = 'train_dataloader.dataset.ann_file'


class DivergedError(ValueError):
    """All runs of a split diverged."""


def sweep(args: argparse.Namespace) -> dict:
    """Train with all rates on one split, and with the best on the others.

    Args:
        args (argparse.Namespace): See ``--help``.

    Returns:
        dict: ``lrs`` (rate -> metric on the first split, None if the run
        diverged), ``best_lr``, ``splits`` (split -> metric with the best
        rate), and ``mean`` and ``std`` of the metric over the splits.

    Raises:
        DivergedError: If all runs of a split diverge.
        ValueError: If a run fails.
    """
    first, *others = args.splits or [None]
    rates = {lr: _best_of_run(args, lr, first) for lr in args.lrs}
    finite = {lr: value for lr, value in rates.items() if value is not None}
    if not finite:
        raise DivergedError('all runs diverged: try lower rates')
    best = max(finite, key=finite.get)
    results = {first or 'all': finite[best]}
    for split in others:
        results[split] = _best_of_run(args, best, split)
        if results[split] is None:
            raise DivergedError(
                f'the run on {split} with lr {best:g} diverged'
            )
    return dict(
        config=str(args.config),
        metric=args.metric,
        lrs=rates,
        best_lr=best,
        splits=results,
        mean=statistics.mean(results.values()),
        std=statistics.pstdev(results.values()),
    )


def _best_of_run(
    args: argparse.Namespace, lr: float, split: str | None
) -> float | None:
    """Train a run if needed; return its best result, None if it diverged."""
    from mmmoca.files import write_json

    name, options = f'lr_{lr:g}', [f'{LR}={lr!r}', *args.cfg_options]
    if split is not None:
        name = f'{Path(split).stem}_{name}'
        options.append(f'{SPLIT}={split}')
    folder = args.work_dir / name
    record = folder / 'run.json'
    settings = dict(config=str(args.config), cfg_options=options)
    state = json.loads(record.read_text()) if record.exists() else settings
    diverged = state.pop('diverged', None)
    if state != settings:
        raise ValueError(
            f'{folder} has a run with other settings: give another --work-dir'
        )
    if diverged is None:
        write_json(record, settings)
        diverged = not _train(args, folder, options)
        write_json(record, dict(settings, diverged=diverged))
    if diverged:
        return None
    # A run that was resumed has several logs.
    values = [
        value
        for log in folder.glob('*/vis_data/scalars.json')
        for line in log.read_text().splitlines()
        if (value := json.loads(line).get(args.metric)) is not None
    ]
    if not values:
        raise ValueError(
            f'no validation in {folder} has the --metric {args.metric!r}'
        )
    return max(values)


def _train(
    args: argparse.Namespace, folder: Path, options: Sequence[str]
) -> bool:
    """Train or resume a run; return False if it diverged."""
    command = [sys.executable, str(TOOLS / 'train.py'), str(args.config)]
    if args.gpus > 1:
        command[:2] = [str(TOOLS / 'dist_train.sh')]
        command.append(str(args.gpus))
    command += ['--work-dir', str(folder), '--resume']
    command += [*shlex.split(args.train_args), '--cfg-options', *options]
    # Ctrl-C also reaches the run, which then saves its state: wait for it.
    stopped = []
    previous = signal.signal(signal.SIGINT, lambda *_: stopped.append(True))
    try:
        run = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, previous)
    sys.stderr.write(run.stderr)
    status = run.returncode
    if stopped or status == os.EX_TEMPFAIL:
        print('The sweep was stopped: run the same command to continue.')
        sys.exit(os.EX_TEMPFAIL)
    if status not in (0, os.EX_DATAERR):
        raise ValueError(f'the run in {folder} failed, see above')
    return status == 0


def format_table(result: dict) -> str:
    """Return the result as Markdown: first the rates, then the splits.

    Args:
        result (dict): Result of :func:`sweep`.
    """
    from mmmoca.evaluation.report import render_table

    rows = [
        (f'lr {lr:g}', 'diverged' if value is None else f'{value:.2f}')
        for lr, value in result['lrs'].items()
    ]
    rows += [
        (f'{split}, lr {result["best_lr"]:g}', f'{value:.2f}')
        for split, value in result['splits'].items()
    ]
    rows.append(('mean ± std', f'{result["mean"]:.2f} ± {result["std"]:.2f}'))
    return render_table(('run', result['metric']), rows)


def write_sweep(args: argparse.Namespace) -> None:
    """Do the sweep, print the table and write it to the work dir.

    Args:
        args (argparse.Namespace): The command line.
    """
    if args.work_dir is None:
        args.work_dir = Path('work_dirs') / f'sweep_{args.config.stem}'
    import_stack()
    from mmmoca.files import write_json, write_text

    try:
        result = sweep(args)
    except DivergedError as error:
        print(f'lr_sweep.py: error: {error}', file=sys.stderr)
        sys.exit(os.EX_DATAERR)
    table = format_table(result)
    write_json(args.work_dir / 'sweep.json', result)
    write_text(args.work_dir / 'sweep.md', table)
    print(table, end='')


def main() -> None:
    """Tune the learning rate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('config', type=config_file, help='a config that trains and validates')
    add('--lrs', type=float, nargs='+', required=True)
    splits = (
        f'values of {SPLIT}: the rate is tuned on the first split and used '
        'for all'
    )
    add('--splits', nargs='+', help=splits)
    add('--metric', default='mIoU', help='metric to maximise (mIoU)')
    work_dir = 'folder of all runs (by default work_dirs/sweep_<config>)'
    add('--work-dir', type=Path, help=work_dir)
    add('--gpus', type=positive_integer, default=1, help='GPUs of each run')
    more = 'more arguments for tools/train.py, in the form --train-args=...'
    add('--train-args', default='', help=more)
    form = 'KEY=VALUE'
    add('--cfg-options', nargs='+', action='extend', default=[], metavar=form)
    run_program(parser, write_sweep)


if __name__ == '__main__':
    main()
