# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
r"""Train MOCA and its rivals on the same images in the same CPU seconds.

A method is a name with settings of its config after it. The program trains
every method with the first seed on the first set, keeps the best settings of
each name by k-NN on every other validation image, and trains these with all
seeds on all sets. Tables are of the other validation images.

Finished runs are rows of ``results.jsonl`` beside this file and are not
repeated. A run that was stopped goes on.

Example:
    python -m projects.rivals.run work_dirs/rivals --seconds 240 --methods \
        moca "moca optim_wrapper.optimizer.lr=1e-3 model.codebook.centre=0.9" \
        mocov3 "mocov3 optim_wrapper.optimizer.lr=5e-4"
"""

import argparse
import json
import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from mmmoca.evaluation.report import render_table
from mmmoca.files import write_figure
from projects import trials
from projects.rivals.measure import MEASURES, measure, pixel_accuracy
from projects.rivals.pictures import draw

# What draws the sets.
SETS = {
    'textures': ['tools/dataset_converters/make_textures.py'],
    'digits': ['tools/dataset_converters/make_digits.py'],
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
PACE_STEPS = 40
HEAD = 'method', 'feature', 'steps', 'seconds', *MEASURES, 'nats of image'


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
        words = '_'.join(map(str, self)).replace(' ', '_')
        return ''.join(c if c.isalnum() or c in '._-' else '-' for c in words)


def train(run: Run, out: Path, points: int = POINTS) -> Iterator[Path]:
    """Train a run unless that is done.

    Args:
        run (Run): The run.
        out (Path): Folder of all runs and images.
        points (int): Number of checkpoints.

    Yields:
        Path: Its checkpoints, in order.
    """
    name, *settings = run.method.split()
    interval = -(-run.steps // points)
    work = out / f'{run.name}_{points}'
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
    known = {}
    if RESULTS.is_file():
        rows = map(json.loads, RESULTS.read_text().splitlines())
        known = {Run(*row['run']): row['curve'] for row in rows}
    if run not in known:
        curve = [measure(file, out / run.images) for file in train(run, out)]
        with RESULTS.open('a') as file:
            file.write(json.dumps(dict(run=run, curve=curve)) + '\n')
        return curve
    return known[run]


def steps_in(seconds: float, method: str, images: str, out: Path) -> int:
    """Optimiser steps that fit into CPU seconds, by a short run.

    Args:
        seconds (float): CPU seconds of training.
        method (str): The method.
        images (str): Name of a set.
        out (Path): Folder of all runs and images.

    Returns:
        int: At least 1.
    """
    run = Run(images, method, 0, PACE_STEPS)
    first, last = (
        measure(file, out / images)['seconds']
        for file in train(run, out, points=2)
    )
    # Without the first steps, which start loaders and kernels.
    return max(1, round(seconds * PACE_STEPS / 2 / (last - first)))


def choose(curves: dict[Run, list[dict]]) -> dict[str, tuple[str, str]]:
    """Find the best settings and feature of each method by k-NN.

    Args:
        curves (dict[Run, list[dict]]): Results of one set and seed.

    Returns:
        dict[str, tuple[str, str]]: By name, the method with its settings and
        'avg' or 'cls', by the images for choosing at the end of the runs.
    """
    best = {}
    for run, curve in curves.items():
        name = run.method.split()[0]
        for feature, value in curve[-1]['choose'].items():
            best.setdefault(name, {})[run.method, feature] = value['k-NN']
    return {name: max(found, key=found.get) for name, found in best.items()}


def table(
    curves: dict[Run, list[dict]], features: dict[str, str]
) -> Iterator[tuple[str, ...]]:
    """Rows of one set, one for each method.

    Args:
        curves (dict[Run, list[dict]]): Results of one set.
        features (dict[str, str]): The feature of each method.

    Yields:
        tuple[str, ...]: A column for each of ``HEAD``, with means and
        deviations over the seeds.
    """
    for method, seeds in by_method(curves).items():
        ends = [curve[-1] for curve in seeds]
        feature = features[method]
        information = [end['image_information'] for end in ends]
        yield (
            method,
            feature,
            str(ends[0]['step']),
            f'{mean(end["seconds"] for end in ends):.0f}',
            *(
                trials.mean_and_deviation(
                    [end['report'][feature][name] for end in ends]
                )
                for name in MEASURES
            ),
            ''
            if None in information
            else trials.mean_and_deviation(information, digits=2),
        )


def by_method(curves: dict[Run, list[dict]]) -> dict[str, list[list[dict]]]:
    """Group the curves of all seeds by method.

    Args:
        curves (dict[Run, list[dict]]): Results of one set.

    Returns:
        dict[str, list[list[dict]]]: By method with its settings.
    """
    found = {}
    for run, curve in curves.items():
        found.setdefault(run.method, []).append(curve)
    return found


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
    add('--seconds', type=float, default=240, help='of training, on one core')
    add('--steps', type=int, help='of each method, instead of --seconds')
    add('--jobs', type=int, default=os.cpu_count(), help='runs at a time')
    args = parser.parse_args()
    for method in args.methods:
        name, *settings = method.split()
        if name not in CONFIGS or not all('=' in word for word in settings):
            parser.error(
                f'--methods: {method!r} must be one of {", ".join(CONFIGS)}, '
                'with KEY=VALUE after it'
            )
    trials.check_counts(parser, args, 'seeds', 'seconds', 'steps', 'jobs')
    return args


def main() -> None:
    """Train, print the tables and draw the curves."""
    args = parse_args()
    out = args.out.resolve()
    for name in args.sets:
        if not (out / name).is_dir():
            tool, *kind = SETS[name]
            trials.tool(tool, out / name, *kind)
    first = args.sets[0]
    steps = {
        method: args.steps or steps_in(args.seconds, method, first, out)
        for method in args.methods
    }

    def perform(
        images: Iterable[str], methods: Iterable[str], seeds: Iterable[int]
    ) -> dict[Run, list[dict]]:
        return trials.side_by_side(
            partial(result, out=out),
            [
                Run(name, method, seed, steps[method])
                for name in images
                for seed in seeds
                for method in methods
            ],
            jobs=args.jobs,
            name=lambda run: run.name,
        )

    tried = perform([first], args.methods, [0])
    features = dict(choose(tried).values())
    print(f'\n{first}, seed 0\n')
    all_features = dict.fromkeys(args.methods, 'avg') | features
    print(render_table(HEAD, [*table(tried, all_features)]))
    curves = perform(args.sets, features, range(args.seeds))
    by_set = {}
    for name in args.sets:
        own = {run: c for run, c in curves.items() if run.images == name}
        by_set[name] = by_method(own)
        pixels = pixel_accuracy(out / name)
        print(f'\n{name}, k-NN by raw pixels: {pixels:.1f}\n')
        print(render_table(HEAD, [*table(own, features)]))
    write_figure(out / 'curves.png', draw(by_set, features))


if __name__ == '__main__':
    main()
