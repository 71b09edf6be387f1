# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
r"""Train MOCA and its rivals on the same images in the same CPU seconds.

A method is a name with settings of its config after it. Choose settings by
the table of one set with ``--seeds 1 --half choose``. Compare them by tables
of the other half of the validation images.

Finished runs are rows of ``results.jsonl`` beside this file and are not
repeated. A run that was stopped goes on.

Example:
    python -m projects.rivals.run work_dirs/rivals --methods \
        moca "moca optim_wrapper.optimizer.lr=1e-3 model.codebook.centre=0.9" \
        mocov3 "mocov3 optim_wrapper.optimizer.lr=5e-4"
"""

import argparse
import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from mmengine.config import Config

from mmmoca.evaluation.report import render_table
from mmmoca.files import write_figure
from projects import trials
from projects.rivals.measure import MEASURES, measure
from projects.rivals.pictures import draw

# What draws the sets.
SETS = {
    'textures': ['tools/drawn_sets/make_textures.py'],
    'digits': ['tools/drawn_sets/make_digits.py'],
    'letters': ['projects/rivals/make_glyphs.py', 'letters'],
    'shapes': ['projects/rivals/make_glyphs.py', 'shapes'],
}
HERE = Path(__file__).parent
CONFIGS = {
    name: HERE / 'configs' / f'{name}_vit-tiny_textures.py'
    for name in ('moca', 'mocov3', 'byol', 'mae')
}
RESULTS = HERE / 'results.jsonl'
# Measurements of a run, the last one at its end.
POINTS = 4
HEAD = 'method', 'steps', 'seconds', 'k-NN avg', 'k-NN cls', 'linear', 'mAP'


class Run(NamedTuple):
    """One training.

    Attributes:
        images (str): Name of a set.
        method (str): Name of a method, with settings after it.
        seed (int): Seed of the run.
        steps (int): Optimiser steps.
    """

    images: str
    method: str
    seed: int
    steps: int

    @property
    def name(self) -> str:
        """str: Name of the work dir."""
        return '_'.join(map(str, self)).replace('/', '-')


def train(run: Run, out: Path) -> Iterator[Path]:
    """Train a run unless that is done.

    Args:
        run (Run): The run.
        out (Path): Folder of all runs and images.

    Yields:
        Path: Its :data:`POINTS` checkpoints, in order.
    """
    name, *settings = run.method.split()
    interval = -(-run.steps // POINTS)
    work = out / run.name
    work.mkdir(parents=True, exist_ok=True)
    options = {
        'randomness.seed': run.seed,
        'train_dataloader.dataset.data_root': out / run.images,
        'default_hooks.checkpoint.interval': interval,
        **dict(setting.split('=', 1) for setting in settings),
    }
    trials.train(
        *(work, CONFIGS[name], run.steps, options, '--no-validate'),
        log=work / 'log.txt',
        threads=1,
    )
    for step in range(interval, run.steps + interval, interval):
        yield work / f'iter_{min(step, run.steps)}.pth'


def result(run: Run, out: Path) -> list[dict]:
    """Measure a run, which is trained and recorded unless it is known.

    Args:
        run (Run): The run.
        out (Path): Folder of all runs and images.

    Returns:
        list[dict]: See :func:`~projects.rivals.measure.measure`, a
        measurement for each checkpoint.
    """
    for row in map(json.loads, RESULTS.read_text().splitlines()):
        if run == Run(*row['run']):
            return row['curve']
    curve = [measure(file, out / run.images) for file in train(run, out)]
    with RESULTS.open('a') as file:
        file.write(json.dumps(dict(run=run, curve=curve)) + '\n')
    return curve


def table(
    curves: dict[str, list[list[dict]]], half: str
) -> Iterator[tuple[str, ...]]:
    """Rows of one set, one for each method.

    Args:
        curves (dict[str, list[list[dict]]]): Results of all seeds by method.
        half (str): 'choose' or 'report'.

    Yields:
        tuple[str, ...]: A column for each of ``HEAD``, with means and
        deviations over the seeds; linear probe and mAP by the better feature.
    """
    for method, seeds in curves.items():
        ends = [curve[-1] for curve in seeds]
        values = {
            (name, feature): [end[half][feature][name] for end in ends]
            for name in MEASURES
            for feature in ('avg', 'cls')
        }
        columns = [
            *(values['k-NN', feature] for feature in ('avg', 'cls')),
            *(
                max(values[name, 'avg'], values[name, 'cls'], key=mean)
                for name in ('linear', 'mAP')
            ),
        ]
        seconds = mean(end['seconds'] for end in ends)
        yield (
            *(method, str(ends[0]['step']), f'{seconds:.0f}'),
            *map(trials.mean_and_deviation, columns),
        )


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('out', type=Path, help='folder of images, runs and pictures')
    add('--methods', nargs='+', default=list(CONFIGS), metavar='METHOD')
    add('--sets', nargs='+', default=list(SETS), choices=SETS)
    add('--seeds', type=int, default=3)
    add('--times', type=float, default=1, help="of the configs' steps")
    add('--half', default='report', choices=('choose', 'report'))
    add('--jobs', type=int, default=os.cpu_count(), help='runs at a time')
    args = parser.parse_args()
    for method in args.methods:
        name, *settings = method.split()
        if name not in CONFIGS or not all('=' in word for word in settings):
            parser.error(
                f'--methods: {method!r} must be one of {", ".join(CONFIGS)}, '
                'with KEY=VALUE after it'
            )
    trials.check_counts(parser, args, 'seeds', 'jobs')
    return args


def main() -> None:
    """Train, print the tables and draw the curves."""
    args = parse_args()
    out = args.out.resolve()
    for name in args.sets:
        if not (out / name).is_dir():
            tool, *kind = SETS[name]
            trials.tool(tool, out / name, *kind)
    steps = {}
    for name, file in CONFIGS.items():
        iters = Config.fromfile(file).train_cfg.max_iters
        steps[name] = max(1, round(args.times * iters))
    runs = [
        Run(name, method, seed, steps[method.split()[0]])
        for name in args.sets
        for seed in range(args.seeds)
        for method in args.methods
    ]
    found = trials.side_by_side(
        partial(result, out=out), runs, args.jobs, name=lambda run: run.name
    )
    curves = {}
    for run, curve in found.items():
        methods = curves.setdefault(run.images, {})
        methods.setdefault(run.method, []).append(curve)
    for name, methods in curves.items():
        print(f'\n{name}\n')
        print(render_table(HEAD, [*table(methods, args.half)]))
    write_figure(out / 'curves.png', draw(curves))


if __name__ == '__main__':
    main()
