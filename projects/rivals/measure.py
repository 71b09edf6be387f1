# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What frozen features of a checkpoint are worth."""

import json
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from PIL import Image
from torch import Tensor

import mmmoca
from mmmoca.checkpoints import read_checkpoint
from mmmoca.evaluation.knn import knn_top1
from mmmoca.evaluation.linear import linear_accuracy

MEASURES = 'k-NN', 'linear', 'mAP'
# Of linear probing, for a batch of 256.
PROBE_RATES = [0.01 * 3**power for power in range(8)]


@HOOKS.register_module()
class CPUSecondsHook(Hook):
    """Counts the CPU seconds of training; checkpoints record them."""

    # Before the hook that writes checkpoints.
    priority = 'LOW'

    def before_train(self, runner: Runner) -> None:
        """Go on from the seconds of the checkpoint."""
        before = runner.message_hub.get_info('cpu_seconds', 0.0)
        self._start = time.process_time() - before

    def after_train_iter(self, runner: Runner, *_, **__) -> None:
        """Count up to this iteration."""
        seconds = time.process_time() - self._start
        runner.message_hub.update_info('cpu_seconds', seconds)

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Record the seconds with the checkpoint."""
        seconds = runner.message_hub.get_info('cpu_seconds')
        checkpoint['meta']['cpu_seconds'] = seconds


def measure(checkpoint: Path, images: Path) -> dict:
    """Measure the features of a checkpoint: the teacher's if it has one.

    Every other query image is for choosing settings, the rest for reporting.

    Args:
        checkpoint (Path): ``iter_N.pth`` in the work dir of a run.
        images (Path): Folder of ``train`` and ``val``, with classes.

    Returns:
        dict: ``step``, ``seconds``, ``image_information`` in nats (None for
        methods without a codebook) and, for ``choose`` and ``report``, by
        'avg' and 'cls', the accuracies of :data:`MEASURES` in %.
    """
    meta = read_checkpoint(checkpoint, lazy=True)['meta']
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
    return dict(
        step=meta['iter'],
        seconds=round(meta['cpu_seconds'], 1),
        image_information=_last_logged(
            checkpoint.parent, 'image_information', meta['iter']
        ),
        **values,
    )


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
    values = (
        knn_top1(query, unit, asked, known, count, 20, 0.07),
        probe['top1'],
        mean_average_precision(query @ unit.T, asked, known),
    )
    return {
        name: round(value, 2) for name, value in zip(MEASURES, values)
    }, probe['base_lr']


def mean_average_precision(
    similarity: Tensor, asked: Tensor, known: Tensor
) -> float:
    """Mean average precision of retrieval by class.

    Args:
        similarity (Tensor): Of queries and known images, (Q, N).
        asked (Tensor): Classes of the queries, (Q,).
        known (Tensor): Classes of the known images, (N,).

    Returns:
        float: In %.
    """
    order = similarity.argsort(dim=1, descending=True)
    hits = known[order] == asked[:, None]  # (Q, N)
    precision = hits.cumsum(dim=1) / torch.arange(1, hits.shape[1] + 1)
    average = (precision * hits).sum(dim=1) / hits.sum(dim=1)
    return 100 * average.mean().item()


def pixel_accuracy(images: Path) -> float:
    """k-NN accuracy of raw pixels on the images for reporting.

    Args:
        images (Path): Folder of ``train`` and ``val``, with classes.

    Returns:
        float: In %.
    """
    pixels, labels = [], []
    for split in ('train', 'val'):
        paths = sorted((images / split).glob('*/*'))
        rows = np.stack([np.asarray(Image.open(p), float) for p in paths])
        rows = torch.from_numpy(rows).flatten(1)
        pixels.append(F.normalize(rows - rows.mean(dim=1, keepdim=True)))
        labels.append(labels_of(map(str, paths)))
    return knn_top1(
        *(pixels[1][1::2].float(), pixels[0].float()),
        *(labels[1][1::2], labels[0], len(labels[0].unique()), 20, 0.07),
    )


def labels_of(paths: list[str]) -> Tensor:
    """Classes of images, numbers in the order of their folders' names."""
    names = [Path(path).parent.name for path in paths]
    return torch.from_numpy(np.unique(names, return_inverse=True)[1])


def _last_logged(work: Path, name: str, step: int) -> float | None:
    """The last value of a log up to a step, None if it has none."""
    found = None
    for log in sorted(work.glob('*/vis_data/scalars.json')):
        for line in map(json.loads, log.read_text().splitlines()):
            if line.get('step', 0) <= step:
                found = line.get(name, found)
    return found
