# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
r"""MOCA and its rivals on the same images, in the same seconds.

Each method trains the quick start's encoder on its views. Rates and the kind
of feature are chosen with the first seed, by k-NN on every other validation
image of the first set; what is reported is of the others, and of other sets.
What is done is not repeated, what was stopped goes on. Finished runs are rows
of ``results.jsonl`` beside this file, which is read before a run is trained.

Example:
    python -m projects.rivals.run work_dirs/rivals --seeds 3 --seconds 240
"""

import argparse
import json
import os
from functools import partial
from math import ceil
from operator import attrgetter
from pathlib import Path

from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.registry import HOOKS, MODELS, init_default_scope
from mmengine.runner import set_random_seed

from mmmoca.files import write_figure
from projects import trials
from projects.rivals.feature_curve import FILE
from projects.rivals.methods import (
    OURS,
    RATES,
    check_encoders,
    config_of,
    parts_of,
    rates_of,
    write_configs,
)
from projects.rivals.pictures import draw
from projects.rivals.tables import (
    HEAD,
    TARGET_HEAD,
    Run,
    by_method,
    choose,
    table,
    target_table,
)

# What draws them, with its options.
SETS = {
    'textures': ['tools/dataset_converters/make_textures.py'],
    'shapes': ['projects/rivals/make_shapes.py'],
    'plain-shapes': ['projects/rivals/make_shapes.py', '--clutter', 0],
    'digits': ['tools/dataset_converters/make_digits.py'],
}
# k-NN and the others are measured so many times in a run.
POINTS = 4
RESULTS = Path(__file__).with_name('results.jsonl')
PACE_STEPS = 40


def check_images(folder: Path) -> Path:
    """Raise an error unless a folder has labelled images.

    Args:
        folder (Path): With a folder of each class in ``train`` and ``val``.

    Returns:
        Path: ``folder``.

    Raises:
        ValueError: If there are not the same two classes or more in both.
    """
    train, val = (
        {path.name for path in (folder / split).glob('*') if path.is_dir()}
        for split in ('train', 'val')
    )
    if train != val or len(train) < 2:
        raise ValueError(
            f'{folder} has no labels: features are measured on labelled '
            'images, train/<class>/<image> and val/<class>/<image> of the '
            'same two classes or more'
        )
    return folder


def train(run: Run, out: Path, steps: int, points: int = POINTS) -> list[dict]:
    """Train unless it has been done, or to its end.

    Args:
        run (Run): What to train.
        out (Path): Folder of all runs, with their configs.
        steps (int): Optimiser steps.
        points (int): Measurements, the last at the end.

    Returns:
        list[dict]: What :class:`FeatureCurveHook` measured.
    """
    interval = ceil(steps / points)
    options = {
        'randomness.seed': run.seed,
        'train_cfg.max_iters': steps,
        'default_hooks.checkpoint.interval': interval,
        'default_hooks.features.interval': interval,
    }
    if run.rate is not None:
        options['optim_wrapper.optimizer.lr'] = run.rate
    work = out / f'{run.name}_steps_{steps}'
    work.mkdir(parents=True, exist_ok=True)
    trials.train(
        *(work, out / 'configs' / f'{run.images}_{run.method}.py'),
        *(steps, options),
        log=work / 'log.txt',
        threads=1,
    )
    return json.loads((work / FILE).read_text())


def results() -> dict[tuple[Run, int], list[dict]]:
    """Curves of finished runs, by run and optimiser steps."""
    if not RESULTS.is_file():
        return {}
    rows = map(json.loads, RESULTS.read_text().splitlines())
    return {(Run(*row['run']), row['steps']): row['curve'] for row in rows}


def result(run: Run, out: Path, steps: int) -> list[dict]:
    """The curve of a run, which is trained and recorded unless it is known.

    Args:
        run (Run): What to train.
        out (Path): Folder of all runs, with their configs.
        steps (int): Optimiser steps.

    Returns:
        list[dict]: See :func:`train`, each number of four digits.
    """
    if (run, steps) not in (known := results()):
        curve = json.loads(
            json.dumps(train(run, out, steps)),
            parse_float=lambda number: float(f'{float(number):.4g}'),
        )
        row = dict(run=run, steps=steps, curve=curve)
        with open(RESULTS, 'a') as file:
            file.write(f'{json.dumps(row)}\n')
        return curve
    return known[run, steps]


def pace(method: str, images: str, out: Path) -> float:
    """Seconds of a step of a method, from a short run that is kept.

    Args:
        method (str): See :func:`parts_of`.
        images (str): Name of a set.
        out (Path): Folder of all runs.

    Returns:
        float: Without its first steps.
    """
    run = Run(images, method, None, 0)
    first, last = train(run, out, PACE_STEPS, points=2)
    return (last['seconds'] - first['seconds']) / (
        last['step'] - first['step']
    )


def baselines(out: Path, images: str) -> dict[str, float]:
    """k-NN accuracies without training, in per cent.

    Args:
        out (Path): Folder of all runs, with their configs.
        images (str): Name of a set.

    Returns:
        dict[str, float]: Of raw pixels, and of the encoder as MOCA's seed 0
        starts it, on the images that the tables are of.
    """
    cfg = Config.fromfile(next((out / 'configs').glob(f'{images}_*.py')))
    ours = config_of(OURS).model
    init_default_scope(cfg.default_scope)
    hook = HOOKS.build(cfg.default_hooks.features)
    # It would tell of every weight.
    MMLogger.get_instance('baselines', log_level='WARNING')
    set_random_seed(0)
    model = MODELS.build(ours)
    model.init_weights()
    untrained = hook.accuracies(model)
    return {
        'raw pixels': hook.accuracy_of_pixels(),
        **{f'untrained {name}': value for name, value in untrained.items()},
    }


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('out', type=Path, help='folder of images, runs and pictures')
    add('--methods', nargs='+', default=list(RATES), metavar='NAME')
    add('--sets', nargs='+', default=list(SETS), metavar='NAME')
    add('--seeds', type=int, default=3)
    add('--seconds', type=float, default=240, help='of training, on one core')
    add('--steps', type=int, help='of each method, in the place of --seconds')
    add('--jobs', type=int, default=os.cpu_count(), help='runs at a time')
    args = parser.parse_args()
    for method in args.methods:
        try:
            parts_of(method)
        except ValueError as error:
            parser.error(f'--methods: {error}')
    if unknown := sorted(set(args.sets) - set(SETS)):
        parser.error(
            f'--sets {" ".join(unknown)}: there is no such one; there are '
            f'{", ".join(SETS)}'
        )
    trials.check_counts(parser, args, 'seeds', 'seconds', 'steps', 'jobs')
    return args


def steps_of(args: argparse.Namespace, out: Path) -> dict[str, int]:
    """Optimiser steps of each method that fit into the seconds.

    Args:
        args (argparse.Namespace): Of :func:`parse_args`.
        out (Path): Folder of all runs.

    Returns:
        dict[str, int]: By method.
    """
    if args.steps:
        return dict.fromkeys(args.methods, args.steps)
    # One at a time: the other cores are not to slow it.
    seconds = trials.side_by_side(
        partial(pace, images=args.sets[0], out=out), args.methods, jobs=1
    )
    return {
        method: max(1, round(args.seconds / each))
        for method, each in seconds.items()
    }


def main() -> None:
    """Train, print the tables and draw the curves."""
    args = parse_args()
    out = args.out.resolve()
    configs = {method: config_of(method) for method in args.methods}
    images = {name: out / name for name in args.sets}
    try:
        check_encoders(configs)
        for name, folder in images.items():
            if not folder.is_dir():
                tool, *options = SETS[name]
                trials.tool(tool, folder, *options)
            check_images(folder)
    except ValueError as error:
        raise SystemExit(f'run.py: error: {error}') from error
    write_configs(configs, images, out)
    steps = steps_of(args, out)
    perform = partial(
        trials.side_by_side,
        lambda run: result(run, out, steps[run.method]),
        jobs=args.jobs,
        name=attrgetter('name'),
    )
    curves = perform(
        Run(args.sets[0], method, rate, seed=0)
        for method in args.methods
        for rate in rates_of(method)
    )
    chosen = choose(curves)
    features = {method: feature for method, (_, feature) in chosen.items()}
    curves |= perform(
        Run(name, method, chosen[method][0], seed)
        for name in args.sets
        for seed in range(args.seeds)
        for method in args.methods
    )
    for name in args.sets:
        own = {
            run: curve for run, curve in curves.items() if run.images == name
        }
        print(f'\n{name}\n')
        trials.print_table(HEAD, table(own, features))
        print(
            '\nk-NN: '
            + ', '.join(
                f'{what} {accuracy:.1f}'
                for what, accuracy in baselines(out, name).items()
            )
        )
        if targets := target_table(own):
            print()
            trials.print_table(TARGET_HEAD, targets)
        seeds = by_method(own)
        best = {
            method: seeds[method, rate] for method, (rate, _) in chosen.items()
        }
        write_figure(out / f'{name}.png', draw(best, features, name))


if __name__ == '__main__':
    main()
