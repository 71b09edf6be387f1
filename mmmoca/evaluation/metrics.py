# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Metrics for the evaluation protocols with a frozen encoder."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log

from mmmoca.datasets.masks import IGNORED
from mmmoca.registry import METRICS


def set_accuracies(results: list[dict]) -> dict[str, np.ndarray]:
    """Compute the accuracies in percent.

    If a result has a value for each of several training sets, as in low-shot
    classification, there is an accuracy for each set.

    Args:
        results (list[dict]): What :meth:`ImageMetric.record` returned for each
            image.

    Returns:
        dict[str, np.ndarray]: Name of the metric -> accuracies, of shape
        (sets,), or () for a metric without sets.
    """
    return {
        name: 100 * np.mean([hits[name] for hits in results], axis=0)
        for name in results[0]
    }


def meaningful_difference(images: int) -> float:
    """Return the accuracy difference below which chance may explain it.

    Args:
        images (int): Number of images that were classified.

    Returns:
        float: Two standard errors of an accuracy of 50 %, in points, but at
        least 2 points.
    """
    return max(2.0, round(100 / images**0.5, 1))


class ImageMetric(BaseMetric):
    """Base class of metrics that are means over images.

    Args:
        collect_device (str): 'gpu' collects results through the process
            group, whatever its backend. 'cpu' collects them through files in
            the working directory, which all nodes must share. Defaults to
            'gpu'.
        prefix (str, optional): Replaces the prefix of the metrics' names.

    Attributes:
        key (str): Field of a data sample that holds its predictions.
        advice (str): What to write in the config to get this field.
    """

    key: str
    advice: str

    def __init__(
        self, collect_device: str = 'gpu', prefix: str | None = None
    ) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Record the values of each image of a batch.

        Args:
            data_batch (Any): Not used.
            data_samples (Sequence[dict]): Data samples with the field ``key``.

        Raises:
            ValueError: If a sample has no such field.
        """
        for sample in data_samples:
            if self.key not in sample:
                raise ValueError(
                    f'{type(self).__name__} needs {self.key}: {self.advice}'
                )
            self.results.append(self.record(sample))

    @abstractmethod
    def record(self, sample: dict) -> Any:
        """Return an image's values by metric name. They must be picklable.

        A value is a bool (whether a prediction is right) or a share from 0 to
        1.
        A metric over several sets has a list with one value per set.
        """

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Compute the accuracies: mean and standard deviation over sets."""
        metrics = {}
        for name, sets in set_accuracies(results).items():
            metrics[name] = float(sets.mean())
            if sets.size > 1:
                metrics[f'{name}_std'] = float(sets.std())
        return metrics


# With fewer classes, five guesses would be more than half of the classes.
TOP5_FROM = 10


def top_accuracies(num_classes: int) -> tuple[int, ...]:
    """Return the n of the top-n accuracies: 1, and 5 with enough classes."""
    return (1, 5) if num_classes >= TOP5_FROM else (1,)


@METRICS.register_module()
class KNNAccuracy(ImageMetric):
    """Top-1 and top-5 accuracy, in percent, of every (k, temperature).

    Use it with :class:`KNNValLoop` or :class:`KNNTestLoop`, which give each
    sample ``gt_label``, ``num_classes`` and ``knn_pred`` (setting -> labels,
    best first). Metrics are named ``knn/top1_k20`` or, with several
    temperatures, ``knn/top1_k20_t0.07``. Top-5 is computed for ten classes or
    more. A class without a single vote never counts as predicted. For
    arguments and errors see :class:`ImageMetric`.
    """

    default_prefix: str | None = 'knn'
    key = 'knn_pred'
    advice = (
        "write val_cfg=dict(type='mmmoca.KNNValLoop', ...) or "
        "test_cfg=dict(type='mmmoca.KNNTestLoop', ...)"
    )

    def record(self, sample: dict) -> dict[str, bool]:
        """Return whether the prediction is right, by metric name."""
        truth = int(sample['gt_label'])
        return {
            f'top{top}_{name}': truth in labels[:top]
            for top in top_accuracies(sample['num_classes'])
            for name, labels in sample['knn_pred'].items()
        }


@METRICS.register_module()
class NeighbourAgreement(ImageMetric):
    """Agreement of neighbours, in percent, a metric that needs no labels.

    Use it with :class:`NeighbourAgreementValLoop`, which gives each sample
    ``agreement``. The metric is named ``agreement/neighbours``. For arguments
    and errors see :class:`ImageMetric`.
    """

    default_prefix: str | None = 'agreement'
    key = 'agreement'
    advice = "write val_cfg=dict(type='mmmoca.NeighbourAgreementValLoop')"

    def record(self, sample: dict) -> dict[str, float]:
        """Return the agreement of an image, from 0 to 1, by metric name."""
        return dict(neighbours=sample['agreement'])


@METRICS.register_module()
class LowShotAccuracy(ImageMetric):
    """Mean and standard deviation of top-1 accuracy over the training sets.

    Use it with :class:`LowShotTestLoop`, which gives each sample ``gt_label``
    and ``lowshot_pred`` (name -> the label that each set's classifier
    predicts). Metrics, in percent, are named ``lowshot/top1_<name>`` and
    ``lowshot/top1_<name>_std`` (the population standard deviation; left out if
    there is only one set). For arguments and errors see :class:`ImageMetric`.
    """

    default_prefix: str | None = 'lowshot'
    key = 'lowshot_pred'
    advice = "write test_cfg=dict(type='mmmoca.LowShotTestLoop', ...)"

    def record(self, sample: dict) -> dict[str, list[bool]]:
        """Return whether each set's classifier is right, by metric name."""
        truth = int(sample['gt_label'])
        return {
            f'top1_{name}': [label == truth for label in labels]
            for name, labels in sample['lowshot_pred'].items()
        }


@METRICS.register_module()
class LinearProbeAccuracy(ImageMetric):
    """Accuracy, in percent, of the best classifier of a probe.

    Use it with :class:`~mmmoca.models.LinearProbe`, which gives each sample
    ``label_places``, ``base_lrs`` and ``num_classes``. The best classifier has
    the highest top-1 accuracy on the images whose samples have ``held_out``,
    see :func:`~mmmoca.datasets.held_out`. These images are used only for this
    choice. If no image is held out, the choice uses all images, as in iBOT.
    Among equally good classifiers, the first is chosen. Metrics are
    ``linear/top1``, ``linear/top5`` (for ten classes or more),
    ``linear/base_lr`` (the best classifier's learning rate for a batch of 256)
    and ``linear/head`` (its index). The top-1 accuracies of the best five
    classifiers are logged. For arguments and errors see :class:`ImageMetric`.
    """

    default_prefix: str | None = 'linear'
    key = 'label_places'
    advice = "use it with model.type='mmmoca.LinearProbe'"

    def record(self, sample: dict) -> tuple[np.ndarray, bool]:
        """Return the ranks of the true label, (H,), and the held-out flag.

        The rank is 0 for each of the H classifiers that predicts this label.
        """
        self._base_lrs = sample['base_lrs']
        self._num_classes = sample['num_classes']
        places = np.asarray(sample['label_places'], dtype=np.int32)
        return places, bool(sample.get('held_out'))

    def compute_metrics(
        self, results: list[tuple[np.ndarray, bool]]
    ) -> dict[str, float]:
        """Return the best classifier's accuracies, learning rate and index."""
        places, held_out = map(np.stack, zip(*results))  # (N, H), (N,)
        judges = places[held_out] if held_out.any() else places
        top1 = 100.0 * (judges < 1).mean(axis=0)
        best = int(top1.argmax())
        ranked = np.argsort(-top1, kind='stable')[:5]  # `best` first
        accuracies = ', '.join(
            f'{self._base_lrs[place]:g}: {top1[place]:.2f}' for place in ranked
        )
        print_log(f'top-1 by base learning rate: {accuracies}', 'current')
        places = places[~held_out] if held_out.any() else places
        metrics = dict(top1=float(100.0 * (places[:, best] < 1).mean()))
        if 5 in top_accuracies(self._num_classes):
            metrics['top5'] = float(100.0 * (places[:, best] < 5).mean())
        return metrics | dict(base_lr=self._base_lrs[best], head=best)


def mean_iou(predictions: list[np.ndarray], masks: list[np.ndarray]) -> float:
    """Return the mean intersection over union over all images together.

    Args:
        predictions (list[np.ndarray]): Class of each pixel, (H, W) each.
        masks (list[np.ndarray]): True classes, uint8; 255 does not count.

    Returns:
        float: The mean, in percent, over the classes that occur in predictions
        or masks.
    """
    counts = np.zeros((IGNORED, IGNORED), np.int64)
    for found, truth in zip(predictions, masks):
        known = truth < IGNORED
        pairs = truth[known].astype(np.int64) * IGNORED + found[known]
        counts += np.bincount(pairs, minlength=counts.size).reshape(
            counts.shape
        )
    hits = counts.diagonal()
    unions = counts.sum(0) + counts.sum(1) - hits
    return 100 * float((hits[unions > 0] / unions[unions > 0]).mean())
