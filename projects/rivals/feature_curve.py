# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What the features of an encoder are worth, while it trains."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from mmengine.dataset import default_collate
from mmengine.device import get_device
from mmengine.hooks import Hook
from mmengine.registry import DATASETS, HOOKS, MODELS
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.utils.data import DataLoader

from mmmoca.evaluation.features import extract_shard, raw_pixels
from mmmoca.evaluation.knn import knn_top1
from mmmoca.evaluation.linear import linear_accuracy
from mmmoca.evaluation.loaders import rng_untouched
from mmmoca.files import write_json

from .targets import codes_of, features_of, information, likeness

__all__ = ['FEATURES', 'FILE', 'MEASURES', 'FeatureCurveHook', 'plain_encoder']

FEATURES = ('avg', 'cls')
MEASURES = ('knn', 'linear', 'retrieval')
# Of linear probing, for a batch of 256.
PROBE_RATES = [0.01 * 3**power for power in range(8)]
# In the work dir.
FILE = 'features.json'


class LabelledFeatures(NamedTuple):
    """[CLS] and mean patch token after the final norm, (N, D), and labels."""

    cls: Tensor
    avg: Tensor
    labels: Tensor


@HOOKS.register_module()
class FeatureCurveHook(Hook):
    """Measures frozen features on labelled images, by both kinds of feature.

    Every other query image is for choosing rates and features, the rest for
    reporting. Seconds are the CPU's for training, with its images if no other
    process loads them, and without what is measured. All of it goes into the
    checkpoint, and into ``features.json`` of the work dir.

    Args:
        encoder (dict): Config of the ViT that all methods train.
        data_root (str): Folder of ``train`` and ``val``.
        pipeline (list[dict]): Transforms of whole images.
        interval (int): Optimiser steps from one measurement to the next.
        k (int): Neighbours. Defaults to 20.
        temperature (float): Of their votes. Defaults to 0.07.
        epochs (int): Of linear probing. Defaults to 10.
    """

    # After the teacher has moved, before the checkpoint is written.
    priority = 'LOW'

    def __init__(
        self,
        encoder: dict,
        data_root: str,
        pipeline: list[dict],
        interval: int,
        k: int = 20,
        temperature: float = 0.07,
        epochs: int = 10,
    ) -> None:
        self.encoder = plain_encoder(encoder)
        self.interval = interval
        self.k = k
        self.temperature = temperature
        self.epochs = epochs
        self.sets = {}
        for split in ('train', 'val'):
            dataset = DATASETS.build(
                dict(
                    type='mmmoca.ImageFolder',
                    data_root=data_root,
                    data_prefix=split,
                    pipeline=pipeline,
                )
            )
            # Read once, and small: a few minutes' images.
            self.sets[split] = [dataset[i] for i in range(len(dataset))]
            self.num_classes = len(dataset.metainfo['classes'])

    def before_train(self, runner: Runner) -> None:
        """Go on from the checkpoint's curve, or start one."""
        hub = runner.message_hub
        self.curve = hub.get_info('feature_curve', [])
        self.seconds = hub.get_info('seconds_of_training', 0.0)
        self.encoder.to(get_device())
        self._start = time.process_time()

    def after_train_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: dict | None = None,
        outputs: dict | None = None,
    ) -> None:
        """Measure after every ``interval`` steps and the last."""
        # After every step, for a run that is stopped between measurements.
        now = time.process_time()
        self.seconds += now - self._start
        self._start = now
        runner.message_hub.update_info('seconds_of_training', self.seconds)
        step = runner.iter + 1
        if step % self.interval and step != runner.max_iters:
            return
        values = self.measure(runner.model)
        row = dict(step=step, seconds=self.seconds, **values)
        self.curve = [*self.curve, row]
        runner.message_hub.update_info('feature_curve', self.curve)
        write_json(Path(runner.work_dir) / FILE, self.curve)
        runner.logger.info(
            f'{step} steps, {self.seconds:.0f} s: k-NN '
            + ', '.join(
                f'{name} {values["report"][f"knn_{name}"]:.1f}'
                for name in FEATURES
            )
        )
        self._start = time.process_time()

    @rng_untouched()
    def measure(self, model: nn.Module) -> dict[str, dict[str, float]]:
        """What the features are worth now, in per cent.

        Args:
            model (nn.Module): Of MOCA the teacher is taken, of others the
                backbone.

        Returns:
            dict[str, dict[str, float]]: For 'choose' and 'report', by
            measure and feature: ``knn_avg``, ...; of MOCA for 'targets', too,
            by :data:`~projects.rivals.targets.TARGETS`.
        """
        bank, queries = self._features(model)
        values = {'choose': {}, 'report': {}}
        for feature in FEATURES:
            for part, measure, value in self._measures(bank, queries, feature):
                values[part][f'{measure}_{feature}'] = value
        if hasattr(model, 'codebook'):
            known, asked = (
                codes_of(
                    model, model.data_preprocessor(batch, False)['inputs']
                )
                for batch in map(default_collate, self.sets.values())
            )
            codebook = model.codebook
            values['targets'] = dict(
                information(asked, queries.labels),
                similarity=likeness(codebook.words),
            )
            known, asked = (
                features_of(codes, codebook.inner.cpu())
                for codes in (known, asked)
            )
            for name, vectors in known.items():
                values['targets'][f'knn_{name}'] = self._knn(
                    *(asked[name][1::2], queries.labels[1::2]),
                    *(vectors, bank.labels),
                )
        return values

    def accuracies(self, model: nn.Module) -> dict[str, float]:
        """k-NN accuracy of a model, on the images for reporting.

        Args:
            model (nn.Module): See :meth:`measure`.

        Returns:
            dict[str, float]: In per cent, by feature.
        """
        bank, queries = self._features(model)
        return {
            feature: self._knn(
                F.normalize(getattr(queries, feature)[1::2], dim=1),
                queries.labels[1::2],
                F.normalize(getattr(bank, feature), dim=1),
                bank.labels,
            )
            for feature in FEATURES
        }

    def accuracy_of_pixels(self) -> float:
        """k-NN accuracy of raw pixels, on the images for reporting.

        Returns:
            float: In per cent.
        """
        (known, labels), (asked, truth) = (
            (
                F.normalize(raw_pixels(images['inputs'].float()), dim=1),
                torch.cat([s.gt_label for s in images['data_samples']]),
            )
            for images in map(default_collate, self.sets.values())
        )
        return self._knn(asked[1::2], truth[1::2], known, labels)

    def _features(
        self, model: nn.Module
    ) -> tuple[LabelledFeatures, LabelledFeatures]:
        trained = getattr(model, 'teacher', None) or model.backbone
        self.encoder.load_state_dict(trained.state_dict())
        bank, queries = (
            _describe(self.encoder, model.data_preprocessor, items)
            for items in (self.sets['train'], self.sets['val'])
        )
        return bank, queries

    def _knn(
        self, asked: Tensor, truth: Tensor, known: Tensor, labels: Tensor
    ) -> float:
        return knn_top1(
            *(asked, known, truth, labels, self.num_classes),
            *(self.k, self.temperature),
        )

    def _measures(
        self, bank: LabelledFeatures, queries: LabelledFeatures, feature: str
    ) -> Iterator[tuple[str, str, float]]:
        known = getattr(bank, feature), bank.labels
        unit = F.normalize(known[0], dim=1)
        rates = PROBE_RATES
        for start, part in enumerate(('choose', 'report')):
            rows = slice(start, None, 2)
            asked = getattr(queries, feature)[rows], queries.labels[rows]
            query = F.normalize(asked[0], dim=1)
            labels = asked[1], known[1]
            yield part, 'knn', self._knn(query, labels[0], unit, labels[1])
            # The rate that is best on the first half is the second's.
            probe = linear_accuracy(
                *(known, asked, self.num_classes, self.epochs),
                batch_size=256,
                seed=0,
                base_lrs=rates,
            )
            rates = [probe['base_lr']]
            yield part, 'linear', probe['top1']
            precision = mean_average_precision(query @ unit.T, *labels)
            yield part, 'retrieval', precision


def plain_encoder(config: dict) -> nn.Module:
    """The ViT alone: MAE's would mask, MOCA's has a layer to tap.

    Args:
        config (dict): Of MOCA's or a rival's backbone.

    Returns:
        nn.Module: mmpretrain's, in evaluation mode, without weights.
    """
    keys = 'arch', 'img_size', 'patch_size', 'in_channels'
    kept = {key: config[key] for key in keys if key in config}
    encoder = MODELS.build(
        dict(type='VisionTransformer', out_type='raw', **kept)
    )
    encoder.eval()  # mmpretrain's returns nothing
    return encoder


def mean_average_precision(
    similarity: Tensor, truth: Tensor, labels: Tensor
) -> float:
    """How far in front of all others the images of a query's class come.

    Args:
        similarity (Tensor): (Q, N).
        truth (Tensor): Classes of the queries, (Q,).
        labels (Tensor): Classes of the images searched, (N,).

    Returns:
        float: In per cent.
    """
    order = similarity.argsort(dim=1, descending=True)
    hits = labels[order] == truth[:, None]
    precision = hits.cumsum(dim=1) / torch.arange(1, hits.shape[1] + 1)
    average = (precision * hits).sum(dim=1) / hits.sum(dim=1)
    return 100 * average.mean().item()


@torch.no_grad()
def _describe(
    encoder: nn.Module, data_preprocessor: nn.Module, items: Iterable[dict]
) -> LabelledFeatures:
    def describe(batch: dict) -> tuple[Tensor, list]:
        data = data_preprocessor(batch, False)
        tokens = encoder(data['inputs'])[-1]  # (B, 1 + L, D)
        found = tokens[:, 0], tokens[:, 1:].mean(dim=1)
        return torch.cat(found, dim=1), data['data_samples']

    loader = DataLoader(items, 250, collate_fn=default_collate)
    shard = extract_shard(loader, describe)
    # The labels are on the CPU.
    return LabelledFeatures(*shard.feats.cpu().chunk(2, dim=1), shard.labels)
