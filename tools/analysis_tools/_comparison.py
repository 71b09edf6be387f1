# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The protocols of compare.py, on features that are extracted once."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.logging import MMLogger
from mmengine.runner import Runner
from mmpretrain.registry import MODELS
from torch import Tensor, nn
from torch.utils.data import DataLoader

from mmmoca.checkpoints import read_backbone, resize_positions
from mmmoca.evaluation import knn_scores
from mmmoca.evaluation.feature_cache import FeatureCache, weights_digest
from mmmoca.evaluation.loaders import check_same_classes, class_names
from mmmoca.evaluation.low_shot import (
    fit_low_shot,
    low_shot_features,
    low_shot_results,
)
from mmmoca.evaluation.subsets import draw_subset, subset_line

__all__ = ['Comparison', 'LabelledFeatures']


class LabelledFeatures(NamedTuple):
    """Features of one set of images by one backbone.

    Attributes:
        cls (Tensor): [CLS] after the final norm, (N, D).
        avg (Tensor): Mean patch token after the final norm, (N, D).
        raw (Tensor): Mean patch token before it, (N, D).
        labels (Tensor): int64, (N,).
    """

    cls: Tensor
    avg: Tensor
    raw: Tensor
    labels: Tensor

    def pick(self, name: str) -> Tensor:
        """'cls', 'avg' or both of them concatenated ('cls-avg')."""
        parts = [getattr(self, part) for part in name.split('-')]
        return torch.cat(parts, dim=1)


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
        self, checkpoint: str, which: str
    ) -> tuple[LabelledFeatures, LabelledFeatures]:
        """Features of the training and the validation images.

        Args:
            checkpoint (str): A file of any layout known.
            which (str): 'teacher' or 'student'.

        Returns:
            tuple[LabelledFeatures, LabelledFeatures]: On the CPU.

        Raises:
            ValueError: If the checkpoint does not fit the config's backbone.
        """
        model = MODELS.build(self.cfg.model)
        self._load(model.backbone, checkpoint, which)
        model = model.to(get_device()).eval()
        made_from = dict(
            weights=weights_digest(model),
            model=self.cfg.model,
            features='cls, avg, raw',
        )

        def describe(batch: dict) -> tuple[Tensor, Sequence]:
            data = model.data_preprocessor(batch, False)
            return _tokens(model.backbone, data['inputs']), data[
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
                f'{checkpoint}: {title} images',
                made_from | dict(transforms=transforms),
            )
            sets.append(
                LabelledFeatures(*shard.feats.chunk(3, dim=1), shard.labels)
            )
        return tuple(sets)

    def _load(self, backbone: nn.Module, checkpoint: str, which: str) -> None:
        found = read_backbone(checkpoint, which)
        state, grid = dict(found.state_dict), tuple(backbone.patch_resolution)
        if found.grid is not None and found.grid != grid:
            state['pos_embed'] = resize_positions(
                state['pos_embed'], found.grid, grid
            )
        try:
            backbone.load_state_dict(state)
        except RuntimeError as error:
            lines = str(error).splitlines()
            raise ValueError(
                f'{checkpoint} does not fit the backbone of the config: give '
                'another one by --config. '
                + ' '.join(line.strip() for line in lines[1:3])
            ) from error
        self.logger.info(
            f'{checkpoint}: layout {found.layout}, {found.which} encoder, '
            f'all {len(state)} tensors of the backbone loaded'
        )

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
        ks: Sequence[int] = (10, 20),
        temperature: float = 0.07,
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
        subsets: dict[str, list[list[int]]],
    ) -> list[dict]:
        """Accuracies of logistic regressions, see ``low_shot_results``."""
        known, query = (
            low_shot_features(part.raw).numpy() for part in (train, val)
        )
        labels, truth = train.labels.numpy(), val.labels.numpy()
        accuracies = [
            100
            * fit_low_shot(known[rows], labels[rows])[0].score(query, truth)
            for sets in subsets.values()
            for rows in sets
        ]
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


def _tokens(backbone: nn.Module, images: Tensor) -> Tensor:
    """[CLS] and mean patch after the final norm, mean before it, (B, 3D)."""
    form = backbone.out_type, backbone.final_norm
    backbone.out_type, backbone.final_norm = 'raw', False
    tokens = backbone(images)[-1]
    backbone.out_type, backbone.final_norm = form
    normed = backbone.ln1(tokens)
    parts = normed[:, 0], normed[:, 1:].mean(dim=1), tokens[:, 1:].mean(dim=1)
    return torch.cat(parts, dim=1)
