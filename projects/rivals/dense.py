# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Segment drawn shapes by the frozen patches of MOCA and its rivals.

Every method is trained on the images of ``make_shapes_coco.py``, as
``projects.rivals.run`` trains it. Their masks are used after that alone.

Example:
    python -m projects.rivals.dense work_dirs/rivals_dense
"""

import argparse
import json
import os
from functools import partial
from pathlib import Path
from statistics import mean

from mmengine.config import Config

import mmmoca
from mmmoca.apis.comparison import untrain
from mmmoca.apis.dense_comparison import evaluate_masks
from mmmoca.checkpoints import read_checkpoint
from mmmoca.evaluation.report import render_table
from mmmoca.files import write_json
from projects import trials
from projects.rivals.run import CONFIGS, Run, train

SIZE = 96  # of the images; crops for training are of 48 pixels
COUNTS = dict(train=1000, val=200)
HEAD = 'method', 'steps', 'seconds', 'in context', 'linear'


def result(run: Run, out: Path) -> dict:
    """Train a method, and segment by its last checkpoint.

    Args:
        run (Run): The run.
        out (Path): Folder of all runs and images.

    Returns:
        dict: mIoU in %, of both protocols, ``seconds`` and ``bank_patches``.
    """
    path = out / run.name / 'dense.json'
    if path.is_file():
        return json.loads(path.read_text())
    *_, checkpoint = train(run, out)
    found = segment(mmmoca.load(checkpoint, img_size=SIZE), out)
    hub = read_checkpoint(checkpoint, lazy=True)['message_hub']
    found['seconds'] = hub['runtime_info']['cpu_seconds']
    write_json(path, found)
    return found


def segment(encoder: mmmoca.apis.Encoder, out: Path) -> dict:
    """Both protocols for an encoder, with a bank of all patches."""
    patches = COUNTS['train'] * (SIZE // 8) ** 2
    return evaluate_masks(
        encoder, out / 'objects', out / 'patches', bank_size=patches
    )


def main() -> None:
    """Train, print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('out', type=Path, help='folder of images and runs')
    add('--seeds', type=int, default=3)
    add('--jobs', type=int, default=os.cpu_count(), help='runs at a time')
    args = parser.parse_args()
    trials.check_counts(parser, args, 'seeds', 'jobs')
    out = args.out.resolve()
    if not (out / 'objects').is_dir():
        counts = (f'--{split}={count}' for split, count in COUNTS.items())
        trials.tool(
            'tools/drawn_sets/make_shapes_coco.py',
            *(out / 'objects', f'--size={SIZE}', *counts),
        )
    runs = [
        Run('objects', name, seed, Config.fromfile(file).train_cfg.max_iters)
        for seed in range(args.seeds)
        for name, file in CONFIGS.items()
    ]
    found = trials.side_by_side(
        partial(result, out=out), runs, args.jobs, name=lambda run: run.name
    )
    rows = []
    for name in CONFIGS:
        ends = [end for run, end in found.items() if run.method == name]
        steps = next(run.steps for run in runs if run.method == name)
        seconds = mean(end['seconds'] for end in ends)
        columns = (
            trials.mean_and_deviation([end[key]['mIoU'] for end in ends])
            for key in ('incontext', 'linear-seg')
        )
        rows.append((name, f'{steps}', f'{seconds:.0f}', *columns))
    encoder = mmmoca.load(
        out / runs[0].name / f'iter_{runs[0].steps}.pth', img_size=SIZE
    )
    untrain(encoder)
    plain = segment(encoder, out)
    rows.append(
        (
            *('untrained', '0', '0'),
            *(f'{plain[k]["mIoU"]:.1f}' for k in ('incontext', 'linear-seg')),
        )
    )
    print(render_table(HEAD, rows))


if __name__ == '__main__':
    main()
