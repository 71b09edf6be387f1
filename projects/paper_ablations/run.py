# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
r"""Train rows of the paper's tables at the demo's size, in minutes.

A row's model is made as small as the demo's, but is otherwise the paper's.
Images and k-NN are those of the demo. The rest of the recipe is that of
projects/moca_vit-tiny_trials.py, not the demo's. Rows that become the same
network at this size (because they differ only in epochs, tap layer or depth of
a decoder) are trained once. A finished run is not repeated, and a stopped run
continues. Warnings of the runs are listed below the table.

Example:
    python -m projects.paper_ablations.run work_dirs/ablations \
        --rows table2a_img-only table2a_no-condenser --seeds 3
"""

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, stdev

from mmengine.config import Config

from mmmoca.progress import progress_bar

HERE = Path(__file__).parent
CONFIGS = HERE / 'configs'
ACCURACY = 'knn/top1_k20'
QUICK_START = HERE.parent / 'moca_vit-tiny_trials.py'
ROOT = HERE.parents[1]
# The tables in the docs, and the parts of their lines: what a row is, the name
# of its config, and the paper's k-NN accuracy.
TABLES = ROOT / 'docs' / 'benchmarks' / 'ablations.md'
LINE = re.compile(
    r'^\| ([^|]+) \| \[`([^`]+)`\]\(\S*ablations/configs/\S+\) \| ([^|]*) \|',
    re.MULTILINE,
)


def table_rows() -> dict[str, tuple[str, str]]:
    """Return, for each config, what its row is and the paper's k-NN."""
    found = LINE.findall(TABLES.read_text())
    return {name: (what, paper.strip()) for what, name, paper in found}


def quick_start(name: str) -> Config:
    """Return moca_vit-tiny_trials.py with a row's model, at the demo's size.

    The backbone's number of layers and its tap layer are divided by 3, the
    depth of decoders by 2, and K by 16. The width of decoders becomes 96.

    Args:
        name (str): Name of the config, without ``.py``.

    Returns:
        Config: The config, as if read from a file.
    """
    cfg = Config.fromfile(QUICK_START)
    row = Config.fromfile(CONFIGS / f'{name}.py')
    small, model = cfg.model, row.model
    tap_layer = model.backbone.tap_layer
    model.data_preprocessor = small.data_preprocessor
    model.backbone = small.backbone
    model.backbone.tap_layer = tap_layer and round(tap_layer / 3)
    model.codebook.num_words //= 16
    model.codebook.border = small.codebook.border
    for decoder in _parts(model.neck, 'decoders'):
        decoder.update(
            embed_dims=small.neck.embed_dims,
            num_heads=small.neck.num_heads,
            depth=max(1, decoder.depth // 2),
        )
    for target in _parts(model.head, 'targets'):
        if 'patch_size' in target:
            target.patch_size = small.backbone.patch_size
    cfg.model = model
    if 'custom_imports' in row:
        cfg.custom_imports = row.custom_imports
    return cfg


def _parts(config: Config | None, key: str) -> list:
    """Return the configs under a key; without the key, the config itself."""
    return [] if config is None else config.get(key, [config])


def tool(name: str, *arguments: object, log: Path, threads: int) -> None:
    """Run a program of the repository.

    Args:
        name (str): Path of the program.
        *arguments (object): Its arguments.
        log (Path): File to which its output is appended.
        threads (int): Number of threads of the process.

    Raises:
        RuntimeError: If the program fails.
    """
    environment = dict(
        os.environ,
        OMP_NUM_THREADS=str(threads),
        OMP_WAIT_POLICY='passive',
        PYTHONPATH=f'{ROOT}{os.pathsep}{os.environ.get("PYTHONPATH", "")}',
    )
    command = [sys.executable, ROOT / name, *arguments]
    with log.open('a') as out:
        done = subprocess.run(
            [*map(str, command)],
            cwd=ROOT,
            env=environment,
            stdout=out,
            stderr=out,
        )
    if done.returncode:
        raise RuntimeError(f'{name} failed; {log} says why')


def train(
    name: str, seed: int, out: Path, images: Path, steps: int, threads: int
) -> float:
    """Train a row, or resume it, unless it has ended.

    Args:
        name (str): Name of its config.
        seed (int): Seed of the run.
        out (Path): Folder of all runs, with ``configs/<name>.py``.
        images (Path): Folder of ``train`` and ``val``.
        steps (int): Number of optimiser steps.
        threads (int): Number of threads of the process.

    Returns:
        float: k-NN accuracy of the teacher, in per cent.
    """
    work = folder(name, seed, out, steps)
    work.mkdir(parents=True, exist_ok=True)
    options = {
        'randomness.seed': seed,
        'train_dataloader.dataset.data_root': images,
        'val_cfg.data_root': images,
        'train_cfg.max_iters': steps,
        'train_cfg.val_interval': steps,
        'default_hooks.checkpoint.interval': max(1, steps // 8),
    }
    if not (work / f'iter_{steps}.pth').is_file():
        line = [out / 'configs' / f'{name}.py', '--work-dir', work, '--resume']
        line += ['--cfg-options', *(f'{k}={v}' for k, v in options.items())]
        tool('tools/train.py', *line, log=work / 'log.txt', threads=threads)
    return accuracy(work)


def folder(name: str, seed: int, out: Path, steps: int) -> Path:
    """Return the folder of a run, whose output is in its ``log.txt``."""
    return out / f'{name}_steps_{steps}_seed_{seed}'


def accuracy(work: Path) -> float:
    """Return the last k-NN accuracy of a run, in per cent."""
    log = max(work.glob('*/vis_data/scalars.json'))
    lines = map(json.loads, log.read_text().splitlines())
    return [line[ACCURACY] for line in lines if ACCURACY in line][-1]


def warnings_of(log: Path) -> list[str]:
    """Return the warnings in the output of a run, each of them once."""
    lines = log.read_text().splitlines() if log.is_file() else []
    found = (line.partition(' - WARNING - ')[2] for line in lines)
    return [*dict.fromkeys(filter(None, found))]


def positive(text: str) -> int:
    """Parse an argument: a whole number that is at least 1.

    Raises:
        argparse.ArgumentTypeError: If it is less.
    """
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f'{text} must be 1 or more')
    return int(text)


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    rows = [*table_rows()]
    parser.add_argument('out', type=Path, help='folder of images and runs')
    parser.add_argument(
        '--rows',
        nargs='+',
        choices=rows,
        default=rows,
        metavar='ROW',
        help='names of configs, without .py (by default all)',
    )
    seeds = 'number of seeds of each row (3)'
    parser.add_argument('--seeds', type=positive, default=3, help=seeds)
    steps = 'number of training steps of each run (600)'
    parser.add_argument('--steps', type=positive, default=600, help=steps)
    jobs = 'number of runs at a time (1)'
    parser.add_argument('--jobs', type=positive, default=1, help=jobs)
    return parser.parse_args()


def main() -> None:
    """Train the rows and print the table."""
    args = parse_args()
    from mmmoca.evaluation.report import render_table

    out = args.out.resolve()
    (out / 'configs').mkdir(parents=True, exist_ok=True)
    images = out / 'textures'
    threads = max(1, (os.cpu_count() or 1) // args.jobs)
    if not images.is_dir():  # it appears whole or not at all
        draw = 'tools/drawn_sets/make_textures.py'
        tool(draw, images, log=out / 'textures.txt', threads=threads)
    small = {}
    for name in args.rows:  # MMEngine cannot read configs in threads
        cfg = quick_start(name)
        same = small.setdefault(repr(cfg.to_dict()), name)
        if same == name:
            cfg.dump(out / 'configs' / f'{name}.py')
        else:
            print(f'{name} is the same as {same} at this size')
    # Seed by seed: if the program is stopped, all rows have the first seeds.
    runs = [*itertools.product(range(args.seeds), small.values())]
    with (
        ThreadPoolExecutor(args.jobs) as pool,
        progress_bar('runs', len(runs), seconds=0) as update,
    ):
        found = pool.map(
            lambda run: train(
                run[1], run[0], out, images, args.steps, threads
            ),
            runs,
        )
        accuracies = {}
        for done, (run, value) in enumerate(zip(runs, found), 1):
            accuracies[run] = value
            update(done, f'{run[1]}, seed {run[0]}')
    table = []
    for name in small.values():
        what, paper = table_rows()[name]
        values = [accuracies[seed, name] for seed in range(args.seeds)]
        measured = f'{mean(values):.1f}'
        if len(values) > 1:
            measured += f' ± {stdev(values):.1f}'
        table.append((f'`{name}`', what, measured, paper))
    head = 'row', 'what', f'k-NN, seeds: {args.seeds}', "the paper's"
    print(render_table(head, table))
    found = Counter(
        warning
        for seed, name in runs
        for warning in warnings_of(
            folder(name, seed, out, args.steps) / 'log.txt'
        )
    )
    for warning, number in found.items():
        print(f'- {number} of {len(runs)} runs warned: {warning}')


if __name__ == '__main__':
    main()
