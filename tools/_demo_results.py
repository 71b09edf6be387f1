# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What the demo measures and draws before and after its training."""

from pathlib import Path

import torch
from mmengine.config import Config
from mmpretrain.registry import DATASETS
from rich.console import Console
from rich.table import Table
from torch import Tensor

from mmmoca.engine.hooks.gain_hook import advice
from mmmoca.evaluation import extract_features, knn_top1
from mmmoca.files import write_figure
from mmmoca.models import MOCA
from mmmoca.visualization import (
    Neighbours,
    draw_curves,
    draw_overview,
    pick_images,
    read_scalars,
)

__all__ = ['Sets', 'draw_pictures', 'report']

SHOWN = 8
KINDS = dict(
    raw_pixels='raw pixels',
    untrained='untrained network',
    teacher='pretrained, teacher',
    student='pretrained, student',
)


class Sets:
    """The images that are compared: queries and the bank they search.

    Without labels the bank is its own set of queries.

    Args:
        cfg (Config): The demo's config.
    """

    def __init__(self, cfg: Config) -> None:
        self.bank = DATASETS.build(cfg.bank_dataloader.dataset)
        self.queries, self.labels = self.bank, None
        self.knn = cfg.val_cfg
        if cfg.val_dataloader is not None:
            self.queries = DATASETS.build(cfg.val_dataloader.dataset)
        self.features: dict[str, tuple[Tensor, Tensor]] = {}

    def describe(self, model: MOCA, encoders: dict) -> None:
        """Add the features of queries and bank by some encoders."""
        # Reading draws a seed: the training must not depend on it.
        with torch.random.fork_rng():
            bank, labels = extract_features(
                self.bank, model.data_preprocessor, encoders
            )
            queries = bank
            if self.queries is not self.bank:
                queries, query_labels = extract_features(
                    self.queries, model.data_preprocessor, encoders
                )
                self.labels = query_labels, labels
        for name in encoders:
            self.features[name] = queries[name], bank[name]

    def accuracies(self) -> dict[str, float]:
        """K-NN accuracy of each encoder in percent; empty without labels."""
        if self.labels is None:
            return {}
        return {
            name: knn_top1(
                *features,
                *self.labels,
                len(self.bank.metainfo['classes']),
                self.knn.k,
                self.knn.temperature,
            )
            for name, features in self.features.items()
        }


def draw_pictures(
    model: MOCA, untrained: MOCA, sets: Sets, out: Path
) -> list[Path]:
    """Write ``moca.png`` and ``curves.png``."""
    labels = names = own_rows = None
    if sets.labels is None:
        picked = own_rows = pick_images(None, len(sets.queries), SHOWN)
    else:
        picked = pick_images(sets.labels[0], len(sets.queries), SHOWN)
        labels = sets.labels[0][picked], sets.labels[1]
        names = [sets.bank.metainfo['classes'][label] for label in labels[0]]
    images = torch.stack([sets.queries[index]['inputs'] for index in picked])
    accuracies = sets.accuracies()
    blocks = []
    for name, title in (('teacher', 'MOCA'), ('raw_pixels', 'raw pixels')):
        title = f'nearest images by {title}'
        if name in accuracies:
            title += f' (k-NN {accuracies[name]:.0f} %)'
        queries, bank = sets.features[name]
        blocks.append(
            Neighbours.search(
                title, sets.bank, queries[picked], bank, labels, own_rows
            )
        )
    files = [out / 'moca.png', out / 'curves.png']
    figure = draw_overview(model, untrained, images, blocks, names)
    write_figure(files[0], figure)
    baselines = {
        KINDS[name]: accuracies[name]
        for name in ('raw_pixels', 'untrained')
        if name in accuracies
    }
    write_figure(files[1], draw_curves(read_scalars(out), baselines))
    return files


def report(result: dict, console: Console) -> None:
    """Print accuracies, times and files as a table, and advice."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(justify='left')
    table.add_column(justify='right')
    if result['knn']:
        table.add_row(f'[b]k-NN accuracy[/b], k = {result["k"]}', '%')
    for name, accuracy in result['knn'].items():
        table.add_row(f'  {KINDS[name]}', f'{accuracy:.1f}')
    table.add_row('[b]time[/b]', 's')
    for title, seconds in result['seconds'].items():
        table.add_row(f'  {title}', f'{seconds:.0f}')
    table.add_row('  all', f'{sum(result["seconds"].values()):.0f}')
    console.print()
    console.print(table)
    print('\nLook at', *result['pictures'], sep='\n  ')
    knn = result['knn']
    before = [knn[k] for k in ('raw_pixels', 'untrained') if k in knn]
    if change := advice(before, knn.get('teacher', 0.0)):
        print(f'\n{change}')
