# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""The base class of the loops that evaluate frozen features."""

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

import torch
import torch.nn.functional as F
from mmengine.dist import all_reduce
from mmengine.evaluator import Evaluator
from mmengine.runner import TestLoop
from torch import Tensor
from torch.utils.data import DataLoader

from mmmoca.datasets.class_names import check_same_classes
from mmmoca.engine.steps import unwrap_model
from mmmoca.evaluation.features import DIVERGED, FeatureShard
from mmmoca.evaluation.loaders import (
    check_loader,
    class_label,
    class_names,
    sample_index,
    with_data_root,
)
from mmmoca.evaluation.metrics import ImageMetric

from .baselines_hook import Judgement

LOG_INTERVAL = 50  # batches


class FeatureLoop(TestLoop):
    """Evaluates frozen features by the predictions made from them.

    Each subclass is one protocol. It builds :attr:`labelled` and implements
    :meth:`predict`, unless it overrides :meth:`samples` or :meth:`measure`.

    Args:
        runner (Runner): The runner. Its model has ``data_preprocessor`` and
            ``extract_feat(inputs)``, which returns (B, D), or a tuple with
            such a tensor as its last item.
        dataloader (DataLoader or dict): Loader of the images to classify.
        evaluator (Evaluator or dict or list): Metrics.
        which (str, optional): 'teacher' or 'student', passed to
            ``extract_feat``. Defaults to the model's own default.
        fp16 (bool): Extract under autocast (bfloat16 on a CPU). Defaults to
            False.
        data_root (str, optional): Folder for all data sets. Overrides their
            own ``data_root``.

    Attributes:
        labelled (DataLoader): Loader of the labelled reference images, see
            :meth:`build_labelled`.
        metric_names (Sequence[str] | None): Names of all metrics; None if
            the loop does not know them, as with metrics of another package.
        judgements (Sequence[Judgement]): Metrics that show what training has
            gained, for :class:`.BaselinesHook`.

    Raises:
        ValueError: If images have no label, or a loader never ends.
    """

    labelled: DataLoader
    metric_names: Sequence[str] | None = None
    judgements: Sequence[Judgement] = ()
    stage = 'test'
    with_label = True  # whether images have class labels
    of_training = False  # whether the images are training images

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

    def measures_only(self, kind: type[ImageMetric]) -> bool:
        """Return whether all metrics are of ``kind`` and have its prefix."""
        return all(
            isinstance(metric, kind) and metric.prefix == kind.default_prefix
            for metric in self.evaluator.metrics
        )

    def run(self) -> dict:
        """Extract features, classify the images and compute the metrics.

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

    def measure(self, encode: Callable | None = None) -> dict:
        """Predict once and compute the metrics, without calling hooks.

        Args:
            encode (Callable, optional): See :meth:`extract`.

        Returns:
            dict: Metrics of the evaluator.
        """
        self.runner.model.eval()
        for samples in self.samples(encode):
            self.evaluator.process(data_samples=samples)
        return self.evaluator.evaluate(len(self.dataloader.dataset))

    def samples(self, encode: Callable | None) -> Iterable[list[dict]]:
        """Extract features and predict; see :meth:`extract`, :meth:`predict`.

        All ranks call this together.
        """
        known = self.extract(self.labelled, 'labelled', encode)
        asked = self.extract(self.dataloader, self.stage, encode)
        return self.predict(known, asked)

    def scale(self, feats: Tensor) -> Tensor:
        """Scale features, (B, D), as the protocol requires."""
        return F.normalize(feats)

    def predict(
        self, known: FeatureShard, asked: FeatureShard
    ) -> Iterable[list[dict]]:
        """Predict with the protocol. All ranks call this together.

        Args:
            known (FeatureShard): This rank's share of the labelled images.
            asked (FeatureShard): This rank's share of the images to predict.

        Returns:
            Iterable[list[dict]]: Lists of data samples for the evaluator.
        """
        raise NotImplementedError

    def build_labelled(self, loader: DataLoader | dict) -> DataLoader:
        """Build and check the loader of the labelled reference images.

        Args:
            loader (DataLoader or dict): The loader, or its config.

        Returns:
            DataLoader: The loader. If it is built from a config, it does not
            shuffle by default.

        Raises:
            ValueError: See :func:`check_loader` and
                :func:`check_same_classes`.
        """
        loader = with_data_root(loader, self.data_root)
        if isinstance(loader, dict):
            sampler = dict(type='DefaultSampler', shuffle=False)
            loader = dict(sampler=sampler) | loader
        loader = self.runner.build_dataloader(loader, seed=0)
        check_loader(loader, 'labelled', self.with_label)
        names, others = class_names(loader), class_names(self.dataloader)
        check_same_classes(names, others, ('labelled', self.stage))
        return loader

    def encode(self, inputs: Tensor) -> Tensor:
        """Compute features, (B, D), of normalised images, (B, C, H, W)."""
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
        encode: Callable[[Tensor], Tensor] | None = None,
    ) -> FeatureShard:
        """Extract the features of this rank's share of a loader's images.

        The features are written into one tensor that is allocated at the
        start. Concatenating parts would need twice the memory. All ranks call
        this together.

        Args:
            loader (DataLoader): The images.
            role (str): What the images are for, such as 'labelled'. Used in
                messages.
            encode (Callable, optional): Function from normalised images,
                (B, C, H, W), to features. Defaults to :meth:`encode`.

        Returns:
            FeatureShard: The features, in the order of the loader.

        Raises:
            ValueError: If ``encode`` does not return one vector per image, if
                a sample lacks its label or its index, or if a feature on any
                rank is not finite.
        """
        preprocess = unwrap_model(self.runner.model).data_preprocessor
        encode = encode or self.encode
        sampler = getattr(loader.batch_sampler, 'sampler', loader.sampler)
        feats = torch.empty(0, 0)
        labels, ids = [], []
        start = time.time()
        for i, data_batch in enumerate(loader, 1):
            seen = len(ids)
            # Read labels before the batch moves to the device. Afterwards, the
            # host would wait for each label.
            for sample in data_batch.get('data_samples') or [{}]:
                label = class_label(sample, role) if self.with_label else -1
                labels.append(label)
                ids.append(sample_index(sample, role))
            batch = encode(preprocess(data_batch, False)['inputs'])
            if batch.ndim != 2:
                raise ValueError(
                    'extract_feat must return one vector per image, (B, D), '
                    f'but returned {tuple(batch.shape)}: add '
                    "neck=dict(type='GlobalAveragePooling') to the model"
                )
            batch = self.scale(batch.float())
            if not seen:
                feats = batch.new_empty(len(sampler), batch.shape[1])
            feats[seen : len(ids)] = batch
            if i % LOG_INTERVAL == 0:
                each = (time.time() - start) / i
                eta = timedelta(seconds=int(each * (len(loader) - i)))
                self.runner.logger.info(
                    f'{role} [{i}/{len(loader)}]  eta: {eta}  time: {each:.4f}'
                )
        # Check in parts, because a mask of all features would need much
        # memory.
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
