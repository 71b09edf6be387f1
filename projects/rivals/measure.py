# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What frozen features of a checkpoint are worth."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.metrics import label_ranking_average_precision_score
from torch import Tensor

import mmmoca
from mmmoca.checkpoints import read_checkpoint
from mmmoca.evaluation.knn import knn_top1
from mmmoca.evaluation.linear import linear_accuracy

MEASURES = 'k-NN', 'linear', 'mAP'
# Of linear probing, for a batch of 256.
PROBE_RATES = [0.01 * 3**power for power in range(8)]


def measure(checkpoint: Path, images: Path) -> dict:
    """Measure the features of a checkpoint: the teacher's if it has one.

    Every other query image is for choosing settings, the rest for reporting.

    Args:
        checkpoint (Path): A checkpoint of a run.
        images (Path): Folder of ``train`` and ``val``, with classes.

    Returns:
        dict: ``step``, ``seconds`` and, for ``choose`` and ``report``, by
        'avg' and 'cls', the accuracies of :data:`MEASURES` in %.
    """
    run = read_checkpoint(checkpoint, lazy=True)
    encoder = mmmoca.load(checkpoint)
    bank, queries = (
        encoder.embed(
            str(images / split), features=('avg', 'cls'), num_workers=0
        )
        for split in ('train', 'val')
    )
    known, asked = (labels_of(found.paths) for found in (bank, queries))
    values = {'choose': {}, 'report': {}}
    for feature in ('avg', 'cls'):
        rates = PROBE_RATES
        for start, part in enumerate(values):
            rows = slice(start, None, 2)
            values[part][feature], best = accuracies(
                *(getattr(bank, feature), known),
                *(getattr(queries, feature)[rows], asked[rows]),
                rates=rates,
            )
            # The rate that is best on the first half is the second's.
            rates = [best]
    seconds = run['message_hub']['runtime_info']['cpu_seconds']
    return dict(step=run['meta']['iter'], seconds=round(seconds, 1), **values)


def accuracies(
    bank: Tensor,
    known: Tensor,
    queries: Tensor,
    asked: Tensor,
    rates: list[float],
) -> tuple[dict[str, float], float]:
    """k-NN (k = 20), linear probe and retrieval of fixed features.

    Args:
        bank (Tensor): Features of labelled images, (N, D).
        known (Tensor): Their classes, (N,).
        queries (Tensor): Features of images to classify, (Q, D).
        asked (Tensor): Their classes, (Q,).
        rates (list[float]): Learning rates of the probe.

    Returns:
        tuple[dict[str, float], float]: Each of :data:`MEASURES` in %, and the
        best rate.
    """
    unit, query = F.normalize(bank, dim=1), F.normalize(queries, dim=1)
    count = len(known.unique())
    probe = linear_accuracy(
        *((bank, known), (queries, asked), count),
        epochs=10,
        batch_size=256,
        seed=0,
        base_lrs=rates,
    )
    retrieval = label_ranking_average_precision_score(
        asked[:, None] == known, query @ unit.T
    )
    values = (
        *knn_top1(query, unit, asked, known, count, [20], 0.07),
        probe['top1'],
        100 * float(retrieval),
    )
    return {
        name: round(value, 2) for name, value in zip(MEASURES, values)
    }, probe['base_lr']


def labels_of(paths: list[str]) -> Tensor:
    """Classes of images, numbers in the order of their folders' names."""
    names = [Path(path).parent.name for path in paths]
    return torch.from_numpy(np.unique(names, return_inverse=True)[1])
