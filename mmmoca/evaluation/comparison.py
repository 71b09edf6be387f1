# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""All frozen protocols, on features that are extracted once an encoder."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.logging import MMLogger
from mmengine.registry import init_default_scope
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.utils.data import DataLoader

from .encoders import LabelledFeatures, four_features, load_encoder
from .feature_cache import FeatureCache, weights_digest
from .features import FeatureShard
from .knn import knn_top1
from .linear import linear_accuracy
from .loaders import check_same_classes, class_names, moved
from .low_shot import (
    low_shot_features,
    low_shot_predictions,
    low_shot_results,
)
from .presets import Preset
from .subsets import draw_subset, images_by_class, subset_line

__all__ = ['Comparison']


class Comparison:
    """Two sets of images, and what frozen encoders make of them.

    Unlike in the protocols' own configs, linear probing sees no augmented
    images, and all transforms are those of k-NN.

    Args:
        cfg (Config): A k-NN config: model, transforms, loaders.
        data_root (str): Folder with ``train`` and ``val``.
        cache (str | Path): Folder of the cached features.
        num_workers (int, optional): Processes that read; the config's if not
            given.

    Raises:
        ValueError: If the config is of no k-NN test, or the sets have other
            classes or only one.
    """

    def __init__(
        self,
        cfg: Config,
        data_root: str,
        cache: str | Path,
        num_workers: int | None = None,
    ) -> None:
        if cfg.get('test_cfg', {}).get('bank_dataloader') is None:
            raise ValueError(
                f'{cfg.filename} is no k-NN config: it needs '
                'test_cfg.bank_dataloader, as knn_vit-b16_in1k.py has'
            )
        init_default_scope(cfg.default_scope)
        self.cfg = cfg
        self.logger = MMLogger.get_instance('compare')
        self.cache = FeatureCache(cache, self.logger)
        self.train, self.val = (
            _loader(loader, data_root, num_workers)
            for loader in (cfg.test_cfg.bank_dataloader, cfg.test_dataloader)
        )
        check_same_classes(self.train, self.val, ('training', 'validation'))
        self.classes = class_names(self.train)
        if len(self.classes) < 2:
            raise ValueError(
                f'{data_root} has images of one class only: put those of each '
                'class into a folder of its own, train/<class>/<image>'
            )

    def draw_subsets(
        self,
        shots: Sequence[int] = (1, 2, 5),
        percent: Sequence[float] = (1.0,),
        sets: int = 3,
        seed: int = 0,
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
        images = images_by_class(self.train.dataset)
        rows = {
            subset_line(name, file): row
            for name, files in images.items()
            for file, row in files.items()
        }
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

    def evaluate(
        self,
        path: str,
        subsets: dict[str, list[list[int]]] | None = None,
        which: str | None = None,
        feature: str | None = None,
        protocols: Sequence[str] = ('knn', 'linear', 'lowshot'),
        epochs: int = 100,
        batch_size: int = 256,
        seed: int = 0,
    ) -> dict:
        """Evaluate a checkpoint as its method is published.

        Args:
            path (str): The checkpoint, of any layout known.
            subsets (dict[str, list[list[int]]], optional): Of
                :meth:`draw_subsets`, whose defaults hold if not given.
            which (str, optional): 'teacher' or 'student'; that of the
                checkpoint's preset if not given.
            feature (str, optional): See
                :func:`~mmmoca.evaluation.presets.choose_preset`.
            protocols (Sequence[str]): Which of them to run.
            epochs (int): Of linear probing.
            batch_size (int): Of linear probing.
            seed (int): Of linear probing.

        Returns:
            dict: The file, its settings, and what each protocol gave.

        Raises:
            ValueError: If the checkpoint does not fit.
        """
        model, preset, settings = load_encoder(
            self.cfg, path, self.logger, which, feature
        )
        train, val = self._features(model, path)
        result = dict(checkpoint=path, settings=settings)
        if 'knn' in protocols:
            result['knn'] = self._knn(train, val, preset)
        if 'linear' in protocols:
            result['linear'] = linear_accuracy(
                *((p.pick(preset.linear), p.labels) for p in (train, val)),
                len(self.classes),
                epochs,
                batch_size,
                seed,
            )
        if 'lowshot' in protocols:
            if subsets is None:
                subsets = self.draw_subsets()
            result['lowshot'] = self._low_shot(train, val, preset, subsets)
        return result

    @torch.no_grad()
    def _features(self, model: nn.Module, name: str) -> list[LabelledFeatures]:
        """Features of the training and the validation images, on the CPU."""
        made_from = dict(
            weights=weights_digest(model),
            model=model._config.model,
            features='cls, avg, raw_cls, raw_avg',
        )

        def describe(batch: dict) -> tuple[Tensor, Sequence]:
            data = model.data_preprocessor(batch, False)
            features = four_features(model.backbone, data['inputs'])
            return features, data['data_samples']

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
        return sets

    def _knn(
        self, train: LabelledFeatures, val: LabelledFeatures, preset: Preset
    ) -> dict[str, float]:
        query, bank = (
            F.normalize(part.pick(preset.knn).to(get_device()), dim=1)
            for part in (val, train)
        )
        data = query, bank, val.labels, train.labels, len(self.classes)
        return {
            f'k={k}': knn_top1(*data, k, preset.temperature) for k in (10, 20)
        }

    def _low_shot(
        self,
        train: LabelledFeatures,
        val: LabelledFeatures,
        preset: Preset,
        subsets: dict[str, list[list[int]]],
    ) -> list[dict]:
        known, query = (
            low_shot_features(part.pick(preset.lowshot, normed=False))
            for part in (train, val)
        )
        predictions, failed = low_shot_predictions(
            FeatureShard(torch.arange(len(known)), known, train.labels),
            query,
            subsets,
            self.logger,
            regularization=preset.regularization,
        )
        if failed:
            self.logger.warning(
                f'{len(failed)} of {predictions.shape[1]} low-shot '
                f'regressions have not converged: {"; ".join(failed)}'
            )
        hits = predictions == val.labels[:, None]
        accuracies = (100 * hits.double().mean(dim=0)).tolist()
        results = low_shot_results(subsets, accuracies)
        for result in results:
            result['images_per_class'] = float(
                np.mean(result['images']) / len(self.classes)
            )
        return results


def _loader(
    loader: dict, data_root: str, num_workers: int | None
) -> DataLoader:
    loader = moved(loader, data_root)
    loader.pin_memory = torch.cuda.is_available()
    if num_workers is not None:
        loader.num_workers = num_workers
        loader.persistent_workers = num_workers > 0
    return Runner.build_dataloader(loader, seed=0)
