# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The base of the loops that predict by frozen features."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from mmengine.dist import all_reduce
from mmengine.evaluator import Evaluator
from mmengine.runner import TestLoop
from torch import Tensor
from torch.utils.data import DataLoader

from mmmoca.engine.steps import unwrap_model
from mmmoca.evaluation.features import DIVERGED, FeatureShard
from mmmoca.evaluation.loaders import (
    check_loader,
    class_label,
    sample_index,
    with_data_root,
)

LOG_INTERVAL = 50  # batches


class FeatureLoop(TestLoop):
    """Extracts the features of labelled images, then predicts by them.

    A subclass implements ``classify(**options)``: it passes its predictions to
    the evaluator. Features of whole images come from :meth:`extract`.

    Args:
        runner (Runner): The runner. Its model has ``data_preprocessor`` and
            ``extract_feat(inputs)``, which returns (B, D), or a tuple whose
            last item is that.
        dataloader (DataLoader or dict): Loader of the images to classify.
        evaluator (Evaluator or dict or list): Metrics.
        which (str, optional): 'teacher' or 'student', passed to
            ``extract_feat``. Defaults to the model's own default.
        fp16 (bool): Extract under autocast (bfloat16 on a CPU). Defaults to
            False.
        data_root (str, optional): Folder of all data sets. Overrides their
            own ``data_root``.

    Raises:
        ValueError: If images have no label, or a loader never ends.
    """

    stage = 'test'
    with_label = True  # whether images have class labels

    def __init__(
        self,
        runner,
        dataloader: DataLoader | dict,
        evaluator: Evaluator | dict | list,
        which: str | None = None,
        fp16: bool = False,
        data_root: str | None = None,
    ) -> None:
        super().__init__(
            runner, with_data_root(dataloader, data_root), evaluator, fp16
        )
        if self.with_label:
            check_loader(self.dataloader, self.stage)
        self.which = which
        self.data_root = data_root

    def run(self) -> dict:
        """Extract features, classify, compute the metrics.

        Returns:
            dict: Metrics of the evaluator.
        """
        runner, stage = self.runner, self.stage
        runner.call_hook(f'before_{stage}')
        runner.call_hook(f'before_{stage}_epoch')
        metrics = self.measure()
        runner.call_hook(f'after_{stage}_epoch', metrics=metrics)
        runner.call_hook(f'after_{stage}')
        return metrics

    def measure(self, **options: Any) -> dict:
        """Classify once and compute the metrics, without calling hooks.

        Args:
            **options: For ``classify()``.

        Returns:
            dict: Metrics of the evaluator.
        """
        self.runner.model.eval()
        self.classify(**options)
        return self.evaluator.evaluate(len(self.dataloader.dataset))

    def build_labelled(self, loader: DataLoader | dict) -> DataLoader:
        """Build and check the loader of the labelled reference images.

        Args:
            loader (DataLoader or dict): The loader, or its config.

        Returns:
            DataLoader: The loader. It does not shuffle by default.
        """
        loader = with_data_root(loader, self.data_root)
        if isinstance(loader, dict):
            sampler = dict(type='DefaultSampler', shuffle=False)
            loader = dict(sampler=sampler) | loader
        loader = self.runner.build_dataloader(loader, seed=0)
        check_loader(loader, 'labelled', self.with_label)
        return loader

    def encode(self, inputs: Tensor) -> Tensor:
        """Encode normalised images, (B, C, H, W), by the model -> (B, D)."""
        options = {} if self.which is None else dict(which=self.which)
        with torch.autocast(inputs.device.type, enabled=self.fp16):
            feats = unwrap_model(self.runner.model).extract_feat(
                inputs, **options
            )
        return feats[-1] if isinstance(feats, (tuple, list)) else feats

    @torch.no_grad()
    def extract(
        self,
        loader: DataLoader,
        role: str,
        scale: Callable[[Tensor], Tensor],
        encode: Callable[[Tensor], Tensor] | None = None,
    ) -> FeatureShard:
        """Extract features of labelled images, of this rank's share of them.

        The features are written into one tensor made at the start, so that a
        large set needs its memory once. Called by all ranks together.

        Args:
            loader (DataLoader): The images.
            role (str): What they are for, for messages.
            scale (Callable): Applied to the features of a batch, (B, D),
                float32.
            encode (Callable, optional): From normalised images,
                (B, C, H, W), to features. Defaults to :meth:`encode`.

        Returns:
            FeatureShard: In the order of the loader.

        Raises:
            ValueError: If there is not one vector an image, a sample lacks
                its label or its index, or a feature of any rank is not
                finite.
        """
        preprocess = unwrap_model(self.runner.model).data_preprocessor
        encode = encode or self.encode
        sampler = getattr(loader.batch_sampler, 'sampler', loader.sampler)
        feats = torch.empty(0, 0)
        labels, ids = [], []
        start = time.time()
        for i, data_batch in enumerate(loader, 1):
            seen = len(ids)
            # Before they go to the device, where each would be waited for.
            for sample in data_batch.get('data_samples') or [{}]:
                labels.append(class_label(sample, role))
                ids.append(sample_index(sample, role))
            batch = encode(preprocess(data_batch, False)['inputs'])
            if batch.ndim != 2:
                raise ValueError(
                    'extract_feat must return one vector per image, (B, D), '
                    f'but gave {tuple(batch.shape)}: write '
                    "neck=dict(type='GlobalAveragePooling') into the model"
                )
            batch = scale(batch.float())
            if not seen:
                feats = batch.new_empty(len(sampler), batch.shape[1])
            feats[seen : len(ids)] = batch
            if i % LOG_INTERVAL == 0:
                each = (time.time() - start) / i
                eta = timedelta(seconds=int(each * (len(loader) - i)))
                self.runner.logger.info(
                    f'{role} [{i}/{len(loader)}]  eta: {eta}  time: {each:.4f}'
                )
        # In parts, as a mask of all would need much memory.
        parts = feats[: len(ids)].split(2**14)
        diverged = torch.tensor(
            not all(part.isfinite().all() for part in parts)
        ).int()
        all_reduce(diverged, 'max')
        if diverged:
            raise ValueError(DIVERGED)
        return FeatureShard(
            torch.tensor(ids, dtype=torch.int64),
            feats[: len(ids)],
            torch.tensor(labels, dtype=torch.int64),
        )
