# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
r"""Rows of the paper's tables at the quick start's size, in minutes.

A row's model is made as small as the quick start's; images, schedule and
k-NN are the quick start's, too. Rows that are the same network at this size
(they differ in epochs, l or the depth of a decoder) are trained once. What is
done is not repeated, what was stopped goes on.

Example:
    python -m projects.paper_ablations.run work_dirs/ablations \
        --rows table2a_img-only table2a_no-condenser --seeds 3
"""

import argparse
import os
import re
from pathlib import Path

from mmengine.config import Config

from projects import trials

HERE = Path(__file__).parent
CONFIGS = HERE / 'configs'
QUICK_START = HERE.parent / 'moca_vit-tiny_trials.py'
# What a table of the docs says of a config: what it is, the paper's k-NN.
TABLES = HERE.parents[1] / 'docs' / 'benchmarks' / 'ablations.md'
LINE = re.compile(
    r'^\| ([^|]+) \| \[`([^`]+)`\]\(\S*ablations/configs/\S+\) \| ([^|]*) \|',
    re.MULTILINE,
)


def table_rows() -> dict[str, tuple[str, str]]:
    """Of each config that a table has: what it is, and the paper's k-NN."""
    found = LINE.findall(TABLES.read_text())
    return {name: (what, paper.strip()) for what, name, paper in found}


def quick_start(name: str) -> Config:
    """The quick start's config with the model of a row, made as small.

    Layers are a third of as many, and so is l; decoders are half as deep and
    96 wide; K is a sixteenth.

    Args:
        name (str): Of the config, without ``.py``.

    Returns:
        Config: As mmengine reads it from a file.
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
    """The configs under a key, or the config itself, if there is one."""
    return [] if config is None else config.get(key, [config])


def train(
    name: str, seed: int, out: Path, images: Path, steps: int, threads: int
) -> float:
    """Train a row unless it has been done.

    Args:
        name (str): Of its config.
        seed (int): Of the run.
        out (Path): Folder of all runs, with ``configs/<name>.py``.
        images (Path): Folder of ``train`` and ``val``.
        steps (int): Optimiser steps.
        threads (int): Of the process.

    Returns:
        float: k-NN accuracy of the teacher, in per cent.
    """
    work = out / f'{name}_steps_{steps}_seed_{seed}'
    work.mkdir(parents=True, exist_ok=True)
    options = {
        'randomness.seed': seed,
        'train_dataloader.dataset.data_root': images,
        'val_cfg.data_root': images,
        'train_cfg.val_interval': steps,
        'default_hooks.checkpoint.interval': max(1, steps // 8),
    }
    trials.train(
        *(work, out / 'configs' / f'{name}.py', steps, options),
        log=work / 'log.txt',
        threads=threads,
    )
    return trials.accuracies(work)[-1]


def main() -> None:
    """Train and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    rows = table_rows()
    add = parser.add_argument
    add('out', type=Path, help='folder of images and runs')
    chosen = dict(choices=rows, default=[*rows], metavar='ROW')
    add('--rows', nargs='+', help='configs, without .py (all)', **chosen)
    add('--seeds', type=int, default=3)
    add('--steps', type=int, default=600)
    add('--jobs', type=int, default=1, help='runs at a time')
    args = parser.parse_args()
    trials.check_counts(parser, args, 'seeds', 'steps', 'jobs')
    from mmmoca.evaluation.report import render_table

    out = args.out.resolve()
    images = out / 'textures'
    if not images.is_dir():  # it appears whole
        trials.tool('tools/drawn_sets/make_textures.py', images)
    threads = max(1, (os.cpu_count() or 1) // args.jobs)
    (out / 'configs').mkdir(parents=True, exist_ok=True)
    small = {}
    for name in args.rows:  # MMEngine reads no configs in threads
        cfg = quick_start(name)
        same = small.setdefault(repr(cfg.to_dict()), name)
        if same == name:
            cfg.dump(out / 'configs' / f'{name}.py')
        else:
            print(f'{name} is {same} at this size')
    names = [*small.values()]
    found = trials.side_by_side(
        lambda run: train(*run, out, images, args.steps, threads),
        # Seed by seed, so that what is stopped has all rows first.
        ((row, seed) for seed in range(args.seeds) for row in names),
        args.jobs,
        name='{0[0]}, seed {0[1]}'.format,
    )
    table = []
    for name in names:
        what, paper = rows[name]
        values = [found[name, seed] for seed in range(args.seeds)]
        measured = trials.mean_and_deviation(values)
        table.append((f'`{name}`', what, measured, paper))
    head = 'row', 'what', f'k-NN, {args.seeds} seeds', "the paper's"
    print(render_table(head, table))


if __name__ == '__main__':
    main()
