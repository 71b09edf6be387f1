# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The protocols of compare.py, on features that are extracted once."""

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.logging import MMLogger
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.utils.data import DataLoader

from _encoders import LabelledFeatures, four_features
from mmmoca.evaluation import knn_scores
from mmmoca.evaluation.feature_cache import FeatureCache, weights_digest
from mmmoca.evaluation.loaders import check_same_classes, class_names
from mmmoca.evaluation.low_shot import (
    fit_low_shot,
    low_shot_features,
    low_shot_results,
)
from mmmoca.evaluation.subsets import draw_subset, subset_line

__all__ = ['Comparison']


class Comparison:
    """Two sets of images, and what backbones make of them.

    Args:
        cfg (Config): A k-NN config: model, transforms, loaders.
        data_root (str): Folder with ``train`` and ``val``.
        cache (str | Path): Folder of the cached features.

    Raises:
        ValueError: If the sets have other classes, or only one.
    """

    def __init__(self, cfg: Config, data_root: str, cache: str | Path) -> None:
        self.cfg = cfg
        self.logger = MMLogger.get_instance('compare')
        self.cache = FeatureCache(cache, self.logger)
        self.train, self.val = (
            _loader(loader, data_root)
            for loader in (cfg.test_cfg.bank_dataloader, cfg.test_dataloader)
        )
        check_same_classes(self.train, self.val, ('training', 'validation'))
        self.classes = class_names(self.train)
        if len(self.classes) < 2:
            raise ValueError(
                f'{data_root} has images of one class only: put those of each '
                'class into a folder of its own, train/<class>/<image>'
            )

    @torch.no_grad()
    def features(
        self, model: nn.Module, name: str
    ) -> tuple[LabelledFeatures, LabelledFeatures]:
        """Features of the training and the validation images.

        Args:
            model (nn.Module): The classifier of the config, on the device.
            name (str): Begins the log lines.

        Returns:
            tuple[LabelledFeatures, LabelledFeatures]: On the CPU.
        """
        made_from = dict(
            weights=weights_digest(model),
            model=self.cfg.model,
            features='cls, avg, raw_cls, raw_avg',
        )

        def describe(batch: dict) -> tuple[Tensor, Sequence]:
            data = model.data_preprocessor(batch, False)
            return four_features(model.backbone, data['inputs']), data[
                'data_samples'
            ]

        sets = []
        for loader, loader_cfg, title in (
            (self.train, self.cfg.test_cfg.bank_dataloader, 'training'),
            (self.val, self.cfg.test_dataloader, 'validation'),
        ):
            transforms = loader_cfg.dataset.pipeline
            shard = self.cache.features(
                loader,
                describe,
                f'{name}: {title} images',
                made_from | dict(transforms=transforms),
            )
            sets.append(
                LabelledFeatures(*shard.feats.chunk(4, dim=1), shard.labels)
            )
        return tuple(sets)

    def draw_subsets(
        self,
        shots: Sequence[int],
        percent: Sequence[float],
        sets: int,
        seed: int,
    ) -> dict[str, list[list[int]]]:
        """Draw rows of the training images, as make_subset.py does.

        Args:
            shots (Sequence[int]): Images a class.
            percent (Sequence[float]): Percentages of each class.
            sets (int): Number of sets for each of both.
            seed (int): Seed.

        Returns:
            dict[str, list[list[int]]]: Name -> rows of each set.

        Raises:
            ValueError: As :func:`mmmoca.evaluation.subsets.draw_subset`.
        """
        dataset = self.train.dataset
        images = {name: [] for name in self.classes}
        rows = {}
        for row in range(len(dataset)):
            path = Path(dataset.get_data_info(row)['img_path'])
            path = path.relative_to(dataset.img_prefix).as_posix()
            name, _, file = path.partition('/')
            images[name].append(file)
            rows[subset_line(name, file)] = row
        wanted = {f'{n} shot': dict(shots=n) for n in shots} | {
            f'{p:g} %': dict(percent=p) for p in percent
        }
        return {
            name: [
                [rows[line] for line in draw_subset(images, (seed, i), **how)]
                for i in range(sets)
            ]
            for name, how in wanted.items()
        }

    def knn(
        self,
        train: LabelledFeatures,
        val: LabelledFeatures,
        feature: str,
        temperature: float,
        ks: Sequence[int] = (10, 20),
    ) -> dict[str, float]:
        """Weighted k-NN accuracy in percent, for each k."""
        query, bank = (
            F.normalize(part.pick(feature).to(get_device()), dim=1)
            for part in (val, train)
        )
        accuracies = {}
        for k in ks:
            scores = knn_scores(
                query, bank, train.labels, len(self.classes), k, temperature
            )
            hits = scores.argmax(dim=1).cpu() == val.labels
            accuracies[f'k={k}'] = 100 * hits.double().mean().item()
        return accuracies

    def low_shot(
        self,
        train: LabelledFeatures,
        val: LabelledFeatures,
        feature: str,
        regularization: float,
        subsets: dict[str, list[list[int]]],
    ) -> list[dict]:
        """Accuracies of logistic regressions, see ``low_shot_results``."""
        known, query = (
            low_shot_features(part.pick(feature, normed=False)).numpy()
            for part in (train, val)
        )
        labels, truth = train.labels.numpy(), val.labels.numpy()
        accuracies = []
        for name, sets in subsets.items():
            for number, rows in enumerate(sets):
                classifier, converged = fit_low_shot(
                    known[rows], labels[rows], regularization
                )
                if not converged:
                    self.logger.warning(
                        f'the low-shot regression of {name}, set {number} has '
                        f'not converged in {classifier.max_iter} iterations'
                    )
                accuracies.append(100 * classifier.score(query, truth))
        results = low_shot_results(subsets, accuracies)
        for result in results:
            result['images_per_class'] = float(
                np.mean(result['images']) / len(self.classes)
            )
        return results


def _loader(loader: dict, data_root: str) -> DataLoader:
    loader = copy.deepcopy(loader)
    loader.dataset.data_root = data_root
    loader.pin_memory = torch.cuda.is_available()
    return Runner.build_dataloader(loader, seed=0)
