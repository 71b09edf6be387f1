# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Runs of the quick start with other images and settings, and their k-NN."""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[2]
CONFIG = 'demo/moca_vit-tiny_textures.py'
ACCURACY = 'knn/top1_k20'
# k-NN is measured so many times in a run.
MEASURES = 8


def parser(description: str) -> argparse.ArgumentParser:
    """A command line of these programs."""
    made = argparse.ArgumentParser(description=description.split('\n')[0])
    made.add_argument('out', type=Path, help='folder of images and runs')
    made.add_argument('--seeds', type=int, default=2)
    return made


def tool(name: str, *arguments: object) -> None:
    """Run a command of tools/."""
    command = [sys.executable, ROOT / 'tools' / name, *arguments]
    subprocess.run([*map(str, command)], check=True, cwd=ROOT)


def textures(folder: Path, train: int, val: int, seed: int) -> Path:
    """Draw textures of twelve classes, if they are not there."""
    tool(
        'dataset_converters/make_textures.py',
        folder,
        *('--train', train, '--val', val, '--seed', seed),
    )
    return folder


def pretrain(
    work: Path,
    images: Path,
    labelled: Path,
    steps: int,
    options: dict,
    *arguments: object,
) -> Path:
    """Pretrain on images unless it has been done.

    Args:
        work (Path): The work dir.
        images (Path): The images are in its ``train``.
        labelled (Path): Folder of ``train`` and ``val``, for k-NN.
        steps (int): Optimiser steps of 64 images.
        options (dict): What changes in the config.
        *arguments (object): Further ones of tools/train.py.

    Returns:
        Path: Its last checkpoint.
    """
    checkpoint = work / f'iter_{steps}.pth'
    options = {
        'train_dataloader.dataset.data_root': images,
        'val_cfg.data_root': labelled,
        'train_cfg.max_iters': steps,
        'train_cfg.val_interval': max(1, steps // MEASURES),
        'default_hooks.checkpoint.interval': steps,
        **options,
    }
    if not checkpoint.is_file():
        tool(
            'train.py',
            CONFIG,
            *('--work-dir', work, *arguments, '--cfg-options'),
            *(f'{key}={value}' for key, value in options.items()),
        )
    return checkpoint


def accuracies(work: Path) -> list[float]:
    """What a run measured by k-NN, in per cent, in its order."""
    log = max(work.glob('*/vis_data/scalars.json'))
    lines = map(json.loads, log.read_text().splitlines())
    return [line[ACCURACY] for line in lines if ACCURACY in line]


def tested(out: Path, checkpoint: Path, labelled: Path) -> float:
    """k-NN accuracy of a checkpoint, in per cent."""
    results = out / 'tested.json'
    tool(
        'test.py',
        *(CONFIG, checkpoint, '--work-dir', out / 'tested'),
        *('--out', results, '--out-item', 'metrics'),
        *('--cfg-options', f'test_cfg.data_root={labelled}'),
    )
    return json.loads(results.read_text())[ACCURACY]


def spread(values: Sequence[float]) -> str:
    """A mean, and between which values if there are several."""
    if len(values) == 1:
        return f'{values[0]:.1f}'
    return f'{mean(values):.1f} ({min(values):.1f} to {max(values):.1f})'


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of Markdown."""
    for row in (head, ['---'] * len(head), *rows):
        print('|', ' | '.join(row), '|')
