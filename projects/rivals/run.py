# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
r"""MOCA and its rivals on the same images, in the same seconds.

Each method trains the quick start's encoder on its views. Rates and the kind
of feature are chosen with the first seed, by k-NN on every other validation
image of the first set; what is reported is of the others, and of other sets.
What is done is not repeated, what was stopped goes on.

Example:
    python -m projects.rivals.run work_dirs/rivals --seeds 3 --seconds 240
"""

import argparse
import json
import os
from collections.abc import Iterator
from functools import partial
from math import ceil
from operator import attrgetter
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mmmoca.files import write_figure
from projects import trials
from projects.rivals.feature_curve import (
    FEATURES,
    FILE,
    MEASURES,
    plain_encoder,
)
from projects.rivals.levers import LEVERS
from projects.rivals.pictures import draw
from projects.rivals.targets import TARGETS

HERE = Path(__file__).parent
QUICK_START = trials.ROOT / 'configs' / 'demo' / 'moca_vit-tiny_textures.py'
OURS = 'moca'
# Tried for each on the first set; MOCA's is its config's.
RATES = {
    OURS: (None,),
    'mocov3': (5e-4, 1e-3, 2e-3),
    'byol': (5e-4, 1e-3, 2e-3),
    'mae': (1e-3, 2e-3, 4e-3),
}
METHODS = RATES | dict.fromkeys(LEVERS, (None,))
# Drawn by tools/dataset_converters/make_<name>.py.
SETS = 'textures', 'shapes', 'digits'
# k-NN and the others are measured so many times in a run.
POINTS = 4
PACE_STEPS = 40


class Run(NamedTuple):
    """What is trained once.

    Attributes:
        images (str): Name of a set.
        method (str): Key of :data:`METHODS`.
        rate (float, optional): None for that of the config.
        seed (int): Of the run.
    """

    images: str
    method: str
    rate: float | None
    seed: int

    @property
    def name(self) -> str:
        """str: Of its work dir."""
        rate = '' if self.rate is None else f'_lr_{self.rate:g}'
        return f'{self.images}_{self.method}{rate}_seed_{self.seed}'


def config_of(method: str) -> Config:
    """The config of a method, as a file has it.

    Args:
        method (str): Key of :data:`METHODS`.

    Returns:
        Config: Its own validation is left to :class:`FeatureCurveHook`.
    """
    own = HERE / 'configs' / f'{method}_vit-tiny_textures.py'
    ours = method == OURS or method in LEVERS
    cfg = Config.fromfile(QUICK_START if ours else own)
    cfg.merge_from_dict(LEVERS.get(method, {}))
    for key in ('val', 'test'):
        for part in ('cfg', 'dataloader', 'evaluator'):
            cfg[f'{key}_{part}'] = None
    return cfg


def check_encoders(configs: dict[str, Config]) -> None:
    """Raise an error for a method with another encoder than MOCA's.

    Args:
        configs (dict[str, Config]): By method.

    Raises:
        ValueError: If weights of one differ in name or shape.
    """
    ours = config_of(OURS)
    init_default_scope(ours.default_scope)
    wanted = _shapes(plain_encoder(ours.model.backbone))
    for method, cfg in configs.items():
        found = _shapes(MODELS.build(cfg.model.backbone))
        wrong = sorted(
            name
            for name in {*wanted, *found}
            if wanted.get(name) != found.get(name)
        )
        if wrong:
            raise ValueError(
                f'{method}: model.backbone is not the encoder of '
                f'{QUICK_START}: {wrong[0]} is {found.get(wrong[0])} and '
                f'not {wanted.get(wrong[0])}'
            )


def _shapes(encoder) -> dict[str, tuple[int, ...]]:
    return {k: tuple(v.shape) for k, v in encoder.state_dict().items()}


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


def write_configs(
    configs: dict[str, Config], images: dict[str, Path], out: Path
) -> None:
    """Write the configs of all runs, for a set and a method each.

    Args:
        configs (dict[str, Config]): By method.
        images (dict[str, Path]): By set.
        out (Path): They go into its ``configs``.
    """
    (out / 'configs').mkdir(parents=True, exist_ok=True)
    encoder = config_of(OURS).model.backbone
    for method, cfg in configs.items():
        cfg.custom_imports = dict(imports=['projects.rivals.feature_curve'])
        for name, folder in images.items():
            cfg.train_dataloader.dataset.data_root = str(folder)
            # On its core, not beside it.
            cfg.train_dataloader.update(
                num_workers=0, persistent_workers=False
            )
            cfg.default_hooks.features = dict(
                type='FeatureCurveHook',
                encoder=encoder,
                data_root=str(folder),
                pipeline=cfg.test_pipeline,
                interval=1,
            )
            cfg.dump(out / 'configs' / f'{name}_{method}.py')


def train(run: Run, out: Path, steps: int) -> list[dict]:
    """Train unless it has been done, or to its end.

    Args:
        run (Run): What to train.
        out (Path): Folder of all runs, with their configs.
        steps (int): Optimiser steps.

    Returns:
        list[dict]: What :class:`FeatureCurveHook` measured.
    """
    interval = ceil(steps / POINTS)
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


def pace(method: str, images: str, out: Path) -> float:
    """Seconds of a step of a method, from a short run that is kept.

    Args:
        method (str): Key of :data:`METHODS`.
        images (str): Name of a set.
        out (Path): Folder of all runs.

    Returns:
        float: Without its first steps.
    """
    run = Run(images, method, None, 0)
    first, *_, last = train(run, out, PACE_STEPS)
    return (last['seconds'] - first['seconds']) / (
        last['step'] - first['step']
    )


def choose(curves: dict[Run, list[dict]]) -> dict[str, tuple[float, str]]:
    """The rate and the feature of each method that are best by k-NN.

    Args:
        curves (dict[Run, list[dict]]): Of one set and seed.

    Returns:
        dict[str, tuple[float, str]]: By method, from the images for
        choosing, at the end.
    """
    found = {}
    for method in dict.fromkeys(run.method for run in curves):
        ends = {
            (run.rate, feature): curve[-1]['choose'][f'knn_{feature}']
            for run, curve in curves.items()
            if run.method == method
            for feature in FEATURES
        }
        found[method] = max(ends, key=ends.get)
    return found


def table(
    curves: dict[Run, list[dict]], feature_of: dict[str, str]
) -> Iterator[tuple[str, ...]]:
    """Rows of one set, a method and a rate each.

    Args:
        curves (dict[Run, list[dict]]): Of one set.
        feature_of (dict[str, str]): The feature of a method, for linear
            probing and retrieval.

    Yields:
        tuple[str, ...]: Method, rate, feature, steps, seconds, k-NN by both
        features, linear probe, mAP; means and deviations over the seeds.
    """
    for method, rate, ends in _ends(curves):
        feature = feature_of[method]
        columns = [f'knn_{name}' for name in FEATURES]
        columns += [f'{name}_{feature}' for name in MEASURES[1:]]
        yield (
            method,
            "the recipe's" if rate is None else f'{rate:g}',
            feature,
            str(ends[0]['step']),
            f'{mean(end["seconds"] for end in ends):.0f}',
            *(
                trials.mean_and_deviation(
                    [end['report'][name] for end in ends]
                )
                for name in columns
            ),
        )


def target_table(curves: dict[Run, list[dict]]) -> list[tuple[str, ...]]:
    """Rows of one set, a method with a codebook each.

    Args:
        curves (dict[Run, list[dict]]): Of one set.

    Returns:
        list[tuple[str, ...]]: Method, and what of :data:`TARGETS` was found
        at the end; means and deviations over the seeds.
    """
    return [
        (
            method,
            *(
                trials.mean_and_deviation(
                    [end['targets'][name] for end in ends], digits=2
                )
                for name in TARGETS
            ),
        )
        for method, _, ends in _ends(curves)
        if all('targets' in end for end in ends)
    ]


def _ends(
    curves: dict[Run, list[dict]],
) -> Iterator[tuple[str, float | None, list[dict]]]:
    """Of each method and rate, the last point of each seed."""
    for method, rate in dict.fromkeys((r.method, r.rate) for r in curves):
        yield (
            *(method, rate),
            [
                curve[-1]
                for run, curve in curves.items()
                if (run.method, run.rate) == (method, rate)
            ],
        )


HEAD = (
    *('method', 'rate', 'feature', 'steps', 'seconds'),
    *('k-NN avg', 'k-NN cls', 'linear', 'mAP'),
)


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
    for option, known in (('methods', METHODS), ('sets', SETS)):
        unknown = sorted(set(getattr(args, option)) - set(known))
        if unknown:
            parser.error(
                f'--{option} {" ".join(unknown)}: there is no such one; there '
                f'are {", ".join(known)}'
            )
    trials.check_counts(parser, args, 'seeds', 'seconds', 'steps', 'jobs')
    return args


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
                tool = f'dataset_converters/make_{name}.py'
                trials.tool(tool, folder)
            check_images(folder)
    except ValueError as error:
        raise SystemExit(f'run.py: error: {error}') from error
    write_configs(configs, images, out)
    if args.steps:
        steps = dict.fromkeys(args.methods, args.steps)
    else:
        # One at a time: the other cores are not to slow it.
        seconds = trials.side_by_side(
            partial(pace, images=args.sets[0], out=out), args.methods, jobs=1
        )
        steps = {
            method: max(1, round(args.seconds / each))
            for method, each in seconds.items()
        }
    perform = partial(
        trials.side_by_side,
        lambda run: train(run, out, steps[run.method]),
        jobs=args.jobs,
        name=attrgetter('name'),
    )
    curves = perform(
        Run(args.sets[0], method, rate, seed=0)
        for method in args.methods
        for rate in METHODS[method]
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
        if targets := target_table(own):
            print()
            trials.print_table(('method', *TARGETS.values()), targets)
        best = {
            method: [
                curve
                for run, curve in own.items()
                if (run.method, run.rate) == (method, rate)
            ]
            for method, (rate, _) in chosen.items()
        }
        write_figure(out / f'{name}.png', draw(best, features, name))


if __name__ == '__main__':
    main()
