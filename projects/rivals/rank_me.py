# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Whether RankMe, which needs no labels, orders checkpoints as k-NN does.

Trains the demo with three seeds, and once with a learning rate at which it
collapses. Measures each checkpoint on the validation images.

Example:
    python -m projects.rivals.rank_me work_dirs/rank_me
"""

import argparse
import os
from pathlib import Path

import numpy as np

import mmmoca
from mmmoca.evaluation.rank_me import rank_me
from mmmoca.evaluation.report import render_table
from projects import trials
from projects.rivals.measure import PROBE_RATES, accuracies, labels_of

CONFIG = 'demo/moca_vit-tiny_textures.py'
STEPS, INTERVAL = 1400, 140
HEAD = 'run', 'step', 'RankMe', 'k-NN'


def curve(
    name: str, settings: dict, out: Path
) -> list[tuple[int, float, float]]:
    """Train a run; step, RankMe and k-NN accuracy of each checkpoint.

    Args:
        name (str): Of its work dir.
        settings (dict): What changes in the demo's config.
        out (Path): Folder of all runs and images.

    Returns:
        list[tuple[int, float, float]]: In the order of the steps.
    """
    work = out / name
    work.mkdir(parents=True, exist_ok=True)
    options = {
        'train_dataloader.dataset.data_root': out / 'textures',
        'default_hooks.checkpoint.interval': INTERVAL,
        'default_hooks.checkpoint.max_keep_ckpts': -1,
    }
    trials.train(
        *(work, f'configs/{CONFIG}', STEPS, options | settings),
        '--no-validate',
        log=work / 'log.txt',
        threads=1,
    )
    points = []
    for step in range(INTERVAL, STEPS + 1, INTERVAL):
        encoder = mmmoca.load(work / f'iter_{step}.pth')
        bank, queries = (
            encoder.embed(str(out / 'textures' / split), num_workers=0)
            for split in ('train', 'val')
        )
        known, asked = (labels_of(found.paths) for found in (bank, queries))
        found, _ = accuracies(
            bank.avg, known, queries.avg, asked, PROBE_RATES[:1]
        )
        points.append((step, rank_me(queries.avg), found['k-NN']))
    return points


def order(points: list[tuple[int, float, float]]) -> float:
    """Spearman's rank correlation of RankMe and k-NN."""
    ranks = [np.argsort(np.argsort(column)) for column in zip(*points)][1:]
    return float(np.corrcoef(*ranks)[0, 1])


def main() -> None:
    """Train, and print a table and the correlations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('out', type=Path, help='folder of images and runs')
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--jobs', type=int, default=os.cpu_count())
    args = parser.parse_args()
    trials.check_counts(parser, args, 'seeds', 'jobs')
    out = args.out.resolve()
    if not (out / 'textures').is_dir():
        tool = 'tools/drawn_sets/make_textures.py'
        trials.tool(tool, out / 'textures')
    runs = {f'seed {i}': {'randomness.seed': i} for i in range(args.seeds)}
    runs['collapse'] = {'optim_wrapper.optimizer.lr': 1.0}
    found = trials.side_by_side(
        lambda name: curve(name, runs[name], out), runs, args.jobs
    )
    rows = [
        (name, f'{step}', f'{rank:.1f}', f'{accuracy:.1f}')
        for name, points in found.items()
        for step, rank, accuracy in points
    ]
    print(render_table(HEAD, rows))
    for name, points in found.items():
        print(f'{name}: rank correlation {order(points):.2f}')


if __name__ == '__main__':
    main()
